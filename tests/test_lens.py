"""Lenses compared with their formulas."""

import subprocess
import sys

import pytest
import torch
import transformers as hf

import tiny
from ffscope import LensError, read
from ffscope.analysis.values import _read_layer
from ffscope.models import lenses
from ffscope.models.adaptive_lm import AdaptiveLM, AdaptiveLMConfig
from ffscope.models.lenses import base
from ffscope.models.ranking import ranked

IDS = list(range(4, 12))


def layer_norm_gain(norm, v):
    return (v - v.mean(-1, keepdim=True)) * norm.weight


# what the linear part of each family's top is, spelt out
UPDATES = {
    "gpt2": lambda m, v: layer_norm_gain(m.transformer.ln_f, v) @ m.lm_head.weight.T,
    "opt": lambda m, v: layer_norm_gain(m.model.decoder.final_layer_norm, v) @ m.lm_head.weight.T,
    "gptj": lambda m, v: layer_norm_gain(m.transformer.ln_f, v) @ m.lm_head.weight.T,
    "llama": lambda m, v: (v * m.model.norm.weight) @ m.lm_head.weight.T,
    "gemma": lambda m, v: (v * (1 + m.model.norm.weight)) @ m.lm_head.weight.T,
    "gemma2": lambda m, v: (v * (1 + m.model.norm.weight)) @ m.lm_head.weight.T,
    "olmo": lambda m, v: (v - v.mean(-1, keepdim=True)) @ m.lm_head.weight.T,
    "granite": lambda m, v: (v * m.model.norm.weight) @ m.lm_head.weight.T / 5,
    "t5": lambda m, v: (v * m.decoder.final_layer_norm.weight) @ m.lm_head.weight.T * 12**-0.5,
    "opt post-norm": lambda m, v: (
        layer_norm_gain(m.model.decoder.layers[-1].final_layer_norm, v)
        @ m.model.decoder.project_out.weight.T
        @ m.lm_head.weight.T
    ),
    "bert": lambda m, v: (
        layer_norm_gain(
            m.cls.predictions.transform.LayerNorm,
            layer_norm_gain(m.bert.encoder.layer[-1].output.LayerNorm, v) @ m.cls.predictions.transform.dense.weight.T,
        )
        @ m.cls.predictions.decoder.weight.T
    ),
}


@torch.no_grad()
@pytest.mark.parametrize("name", UPDATES)
def test_updates_pass_the_linear_part_of_the_models_top(name):
    hf_model = tiny.make(name)
    vectors = torch.randn(3, 12, generator=torch.Generator().manual_seed(5))
    logits = read(hf_model).lens("norm").updates(vectors)
    torch.testing.assert_close(logits, UPDATES[name](hf_model, vectors), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_gain_is_exact_in_low_precision():
    hf_model = tiny.make("llama").bfloat16()
    vectors = torch.randn(3, 12, generator=torch.Generator().manual_seed(5))
    step = read(hf_model).lens("norm")
    step.unembedding.matrix, step.unembedding.dtype = step.unembedding.matrix.float(), torch.float32
    expected = (vectors * hf_model.model.norm.weight.float()) @ hf_model.lm_head.weight.float().T
    torch.testing.assert_close(step.updates(vectors), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_values_pass_the_post_norm_and_the_scale():
    hf_model = tiny.make("gemma2")
    block = hf_model.model.layers[1]
    model = read(hf_model)
    written = hf_model.model.layers[1].mlp.down_proj.weight.T * (1 + block.post_feedforward_layernorm.weight)
    expected = UPDATES["gemma2"](hf_model, written)
    torch.testing.assert_close(model.lens("norm").values(1), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(model.lens("norm").values(1, [4, 2]), expected[[4, 2]], atol=1e-4, rtol=1e-4)
    hf_model = tiny.make("granite")
    model = read(hf_model)
    expected = UPDATES["granite"](hf_model, hf_model.model.layers[0].mlp.down_proj.weight.T * 0.3)
    torch.testing.assert_close(model.lens("norm").values(0), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_raw_is_the_product_with_the_embedding():
    hf_model = tiny.make("gpt2")
    vectors = torch.randn(3, 12)
    lens = read(hf_model).lens("raw")
    expected = vectors @ hf_model.transformer.wte.weight.T
    torch.testing.assert_close(lens.states(vectors, 0), expected)
    torch.testing.assert_close(lens.updates(vectors), expected)


@torch.no_grad()
def test_raw_reaches_a_narrower_embedding_by_the_models_own_projection():
    hf_model = tiny.make("opt post-norm")
    vectors = torch.randn(3, 12)
    expected = vectors @ hf_model.model.decoder.project_out.weight.T @ hf_model.lm_head.weight.T
    torch.testing.assert_close(read(hf_model).lens("raw").states(vectors, 0), expected, atol=1e-5, rtol=1e-5)


def test_an_unknown_lens():
    with pytest.raises(LensError, match=r"There is no lens 'none'\. Choose one of: norm, raw, jacobian, tuned\."):
        read(tiny.make("llama")).lens("none")
    with pytest.raises(LensError, match="ViTModel has no unembedding.*Load the model with its language-modelling head"):
        read(tiny.make("vit")).lens()


@torch.no_grad()
@pytest.mark.parametrize("act", ["tanh", "sigmoid", "relu6", "gelu_10"])
def test_an_activation_that_saturates_is_not_taken_for_a_norm(act):
    hf_model = tiny.build(hf.BertForMaskedLM, hf.BertConfig, {**tiny._BERT, "hidden_act": act})
    vectors = torch.randn(3, 12, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(
        read(hf_model).lens("norm").updates(vectors), UPDATES["bert"](hf_model, vectors), atol=1e-5, rtol=1e-5
    )


def test_a_norm_without_weights_before_a_narrower_embedding():
    arguments = {**tiny.TABLE["opt post-norm"][2], "layer_norm_elementwise_affine": False}
    hf_model = tiny.build(hf.OPTForCausalLM, hf.OPTConfig, arguments)
    v = torch.randn(3, 12)
    expected = (v - v.mean(-1, keepdim=True)) @ hf_model.model.decoder.project_out.weight.T @ hf_model.lm_head.weight.T
    torch.testing.assert_close(read(hf_model).lens("norm").updates(v), expected.detach(), atol=1e-5, rtol=1e-5)


def test_lenses_are_listed_without_torch():
    code = """
import sys
for name in ("torch", "transformers", "numpy"): sys.modules[name] = None
from ffscope.models.lenses import lens_names
assert lens_names() == ("norm", "raw", "jacobian", "tuned"), lens_names()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_module_is_all_that_a_new_lens_needs(tmp_path, monkeypatch):
    (tmp_path / "twice.py").write_text(
        "from ffscope.models.lenses.raw import RawLens\n"
        "class TwiceLens(RawLens):\n"
        "    def states(self, states, layer, of='residual'):\n"
        "        return 2 * layer * super().states(states, layer)\n"
        "LENS = TwiceLens\n"
    )
    monkeypatch.setattr(lenses, "__path__", [*lenses.__path__, str(tmp_path)])
    assert lenses.lens_names() == ("norm", "raw", "twice", "jacobian", "tuned")
    model, vectors = read(tiny.make("llama")), torch.ones(3, 12)
    expected = 4 * model.lens("raw").states(vectors, 2)
    torch.testing.assert_close(model.lens("twice").states(vectors, 2), expected)
    monkeypatch.delitem(sys.modules, "ffscope.models.lenses.twice")


def plain_reading(logits, next_token):
    """The first and last 20 tokens of a row by sorting all of it, the rank of the next token, and the first probabilities."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    from_the_bottom = sorted(range(len(logits)), key=lambda token: (logits[token], token))
    return order[:20], from_the_bottom[:20], order.index(next_token) + 1


VOCABULARY = 9001  # more than is ranked directly, and no multiple of a group
WIDE = {"softmax_cutoffs": [301, 1999, VOCABULARY], "input_cutoffs": [301, 1999, VOCABULARY]}


def wide_model(name):
    """One layer over a vocabulary of thousands, with ties: within a band, across the borders of bands and groups, and whole."""
    torch.manual_seed(1)
    if name == "adaptive_lm":
        config = AdaptiveLMConfig(
            **WIDE, input_widths=[16, 8, 4], hidden_size=16, intermediate_size=23, num_hidden_layers=1,
            num_attention_heads=2,
        )  # fmt: skip
        hf_model = AdaptiveLM(config)
        bands = [hf_model.embed_tokens.band(i)[0] for i in range(3)]
    else:
        sizes = {"n_embd": 16, "n_inner": 23, "n_layer": 1, "n_head": 2}
        hf_model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, **sizes))
        bands = [hf_model.lm_head.weight]
    with torch.no_grad():
        for rows in bands:
            rows[1::7] = rows[1]  # many equal logits, in most groups
            rows[-1] = rows[0]
        values = read(hf_model).values(0)
        values[3] = 0  # all logits equal
        values[5:9] *= 1000
    return read(hf_model)


@pytest.mark.parametrize("lens", ["norm", "raw"])
@pytest.mark.parametrize("name", ["adaptive_lm", "gpt2"])
def test_values_read_in_chunks_are_ranked_as_all_logits_sorted(name, lens, monkeypatch):
    monkeypatch.setattr(base, "_LOGITS", 8 * 4 * VOCABULARY)  # four values read at once
    monkeypatch.setattr(base, "_MULTIPLIED", 8)  # eight multiplied, so that the last products are fewer
    model = wide_model(name)
    reading = model.lens(lens)
    count = model.memories[0]
    # In every band, at the borders, and among the ties.
    next_tokens = torch.tensor([0, 1, 8, 300, 301, 302, 1998, 1999, 2000, 8999, 9000])[torch.arange(count) % 11]
    top, probabilities, bottom, ranks = _read_layer(reading, 0, next_tokens)
    logits = torch.cat([chunk.clone() for chunk in reading.value_chunks(0)])
    torch.testing.assert_close(logits, reading.values(0), rtol=1e-6, atol=1e-6)
    for memory, row in enumerate(logits):
        best, worst, rank = plain_reading(row.tolist(), int(next_tokens[memory]))
        assert (top[memory].tolist(), bottom[memory].tolist(), int(ranks[memory])) == (best, worst, rank)
    expected = logits.double().softmax(-1).gather(1, top.long()).float()
    torch.testing.assert_close(probabilities, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("count", [1, 20, 500])
@pytest.mark.parametrize("vocab", [4095, 4096, 5003])
@pytest.mark.parametrize("levels", [1, 3, 10**6])
def test_a_large_vocabulary_is_ranked_in_groups_as_sorted(vocab, levels, count):
    logits = torch.randint(levels, (3, vocab), generator=torch.Generator().manual_seed(levels)) / 8
    highest, lowest = (logits.sort(dim=-1, stable=True, descending=down).indices[:, :count] for down in (True, False))
    assert torch.equal(ranked(logits, count), highest)
    assert torch.equal(ranked(logits, count, lowest=True), lowest)
