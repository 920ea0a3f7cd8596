"""A checkpoint of the paper's size with random weights, as fairseq would write it, and a corpus in WikiText's form."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

CUTOFFS, WIDTHS, VOCAB = (20_000, 60_000), (1024, 256, 64), 267_744
HIDDEN, MEMORIES, LAYERS = 1024, 4096, 16


def write_checkpoint(folder: Path, seed: int = 0) -> Path:
    """model.pt and dict.txt of transformer_lm_wiki103: some 247 million numbers."""
    torch.manual_seed(seed)
    arguments = Namespace(
        arch="transformer_lm_wiki103",
        task="language_modeling",
        activation_fn="relu",
        decoder_attention_heads=8,
        decoder_normalize_before=True,
        no_decoder_final_norm=True,
        tokens_per_sample=512,
        max_target_positions=512,
    )
    torch.save({"args": arguments, "model": dict(_weights())}, folder / "model.pt")
    lines = (f"{word} {VOCAB - number}\n" for number, word in enumerate(words()))
    (folder / "dict.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def words() -> list[str]:
    """As many words as the dictionary has, without the four symbols."""
    return ["the", ",", ".", "@-@", "="] + [f"word{number}" for number in range(VOCAB - 9)]


def write_corpus(file: Path, sentences: int, seed: int = 0) -> Path:
    """Articles of sentences of some 25 words, drawn with the word frequencies of natural text (Zipf's law)."""
    generator = np.random.default_rng(seed)
    known = words()
    frequencies = 1 / np.arange(1, len(known) + 1)
    with file.open("w", encoding="utf-8") as out:
        for number in range(sentences):
            if number % 20 == 0:
                print(f" = Article {number // 20} = \n", file=out)
            picked = generator.choice(len(known), int(generator.integers(10, 40)), p=frequencies / frequencies.sum())
            print(f" Sentence {' '.join(known[word] for word in picked)} {number} . ", file=out)
    return file


def _weights() -> Iterator[tuple[str, Tensor]]:
    """The decoder's weights under fairseq's names, tied ones twice."""
    edges = [0, *CUTOFFS, VOCAB]
    for band, width in enumerate(WIDTHS):
        rows, widening = _random(edges[band + 1] - edges[band], width), _random(HIDDEN, width)
        yield f"decoder.embed_tokens.embeddings.{band}.0.weight", rows
        yield f"decoder.embed_tokens.embeddings.{band}.1.weight", widening
        if band == 0:
            yield "decoder.adaptive_softmax.head.word_proj.weight", rows
            yield "decoder.adaptive_softmax.head.class_proj.weight", _random(len(CUTOFFS), HIDDEN)
        else:
            yield f"decoder.adaptive_softmax.tail.{band - 1}.0.weight", widening
            yield f"decoder.adaptive_softmax.tail.{band - 1}.2.weight", rows
    for layer in range(LAYERS):
        at = f"decoder.layers.{layer}"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield f"{at}.self_attn.{name}.weight", _random(HIDDEN, HIDDEN)
            yield f"{at}.self_attn.{name}.bias", _random(1, HIDDEN).flatten()
        for name, sizes in {"fc1": (MEMORIES, HIDDEN), "fc2": (HIDDEN, MEMORIES)}.items():
            yield f"{at}.{name}.weight", _random(*sizes)
            yield f"{at}.{name}.bias", _random(1, sizes[0]).flatten()
        for name in ("self_attn_layer_norm", "final_layer_norm"):
            yield f"{at}.{name}.weight", torch.ones(HIDDEN)
            yield f"{at}.{name}.bias", torch.zeros(HIDDEN)


def _random(rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns) * columns**-0.5
