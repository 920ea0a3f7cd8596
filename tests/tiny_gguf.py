"""A tiny Llama as a GGUF file, its large weights quantized."""

from pathlib import Path

import numpy as np

LAYERS, HIDDEN, INNER, HEADS = 2, 64, 96, 2
LETTERS = "ĠabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,!?"


def write_gguf(file: Path, *, seed: int = 0) -> Path:
    """Write a random model with its tokenizer."""
    import gguf

    tokens = ["<unk>", "<s>", "</s>", *LETTERS, "th", "the"]
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3, *[1] * (len(tokens) - 3)])
    writer.add_token_merges(["t h", "th e"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    for name, array in _weights(np.random.default_rng(seed), len(tokens)):
        if array.ndim == 1:
            writer.add_tensor(name, array)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _weights(generator, vocab):
    def random(*shape):
        return generator.normal(0, 0.2, shape).astype(np.float32)

    yield "token_embd.weight", random(vocab, HIDDEN)
    yield "output.weight", random(vocab, HIDDEN)
    yield "output_norm.weight", 1 + random(HIDDEN)
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{layer}.{name}.weight", random(HIDDEN, HIDDEN)
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", 1 + random(HIDDEN)
        for name in ("ffn_gate", "ffn_up"):
            yield f"blk.{layer}.{name}.weight", random(INNER, HIDDEN)
        yield f"blk.{layer}.ffn_down.weight", random(HIDDEN, INNER)
