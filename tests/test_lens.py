"""Lenses compared with their formulas."""

import subprocess
import sys

import pytest
import torch
import transformers as hf

import tiny
from ffscope import LensError, read
from ffscope.models import lenses

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
    with pytest.raises(LensError, match=r"There is no lens 'tuned'\. Choose one of: norm, raw\."):
        read(tiny.make("llama")).lens("tuned")
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
assert lens_names() == ("norm", "raw"), lens_names()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_module_is_all_that_a_new_lens_needs(tmp_path, monkeypatch):
    (tmp_path / "twice.py").write_text(
        "from ffscope.models.lenses.raw import RawLens\n"
        "class TwiceLens(RawLens):\n"
        "    def states(self, states, layer):\n"
        "        return 2 * layer * super().states(states, layer)\n"
        "LENS = TwiceLens\n"
    )
    monkeypatch.setattr(lenses, "__path__", [*lenses.__path__, str(tmp_path)])
    assert lenses.lens_names() == ("norm", "raw", "twice")
    model, vectors = read(tiny.make("llama")), torch.ones(3, 12)
    expected = 4 * model.lens("raw").states(vectors, 2)
    torch.testing.assert_close(model.lens("twice").states(vectors, 2), expected)
    monkeypatch.delitem(sys.modules, "ffscope.models.lenses.twice")
