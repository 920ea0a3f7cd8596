"""A wrong row of the table of families fails the check."""

from dataclasses import replace

import pytest
import torch

import tiny
from ffscope import ProofError, check, read
from ffscope.models import check as identities
from ffscope.models.check import prove
from ffscope.models.families import FAMILIES, Dense, Top
from ffscope.models.memory_model import MemoryModel


def broken(name: str, *, top: Top | None = None, **changes) -> MemoryModel:
    """A tiny model laid out by a row of which one thing is wrong."""
    hf_model = tiny.make(name)
    family = FAMILIES[hf_model.config.model_type]
    blocks = tuple(replace(block, **changes) for block in family.blocks) if changes else family.blocks
    return MemoryModel(hf_model, None, replace(family, blocks=blocks, tops=(top,) if top else family.tops))


def failed(model: MemoryModel) -> set[str]:
    return {finding.identity for finding in check(model) if not finding.holds}


def test_swapped_gate_and_key():
    swapped = Dense(gate="mlp.up_proj", key="mlp.gate_proj", value="mlp.down_proj", act="mlp.act_fn")
    assert failed(broken("llama", parts=(swapped,))) == {identities.KEYS}


def test_fused_halves_in_the_wrong_order():
    swapped = Dense(key="mlp.gate_up_proj", value="mlp.down_proj", act="mlp.activation_fn", fused="key-gate")
    assert failed(broken("phi3", parts=(swapped,))) == {identities.KEYS}


def test_an_attention_projection_posing_as_the_feed_forward_layer():
    posing = Dense(key="self_attn.v_proj", value="self_attn.out_proj", act="activation_fn")
    assert failed(broken("opt", parts=(posing,))) >= {identities.KEYS, identities.SUM}


def test_a_wrong_residual_under_a_large_one():
    model = broken("llama", residual="in:.")
    model.model.get_input_embeddings().weight.data[:, 0] = 1e5
    assert identities.SUM in failed(model)


def test_a_right_row_under_a_large_residual(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    for dtype in (torch.float32, torch.bfloat16):
        model = broken("llama")
        model.model.get_input_embeddings().weight.data[:, 0] = 1e4
        model.model.to(dtype)
        assert failed(model) == set()


def test_another_activation():
    posing = Dense(key="mlp.c_fc", value="mlp.c_proj", act="fn:relu")
    assert failed(broken("gpt2", parts=(posing,))) == {identities.KEYS}


def test_a_post_norm_left_out():
    assert failed(broken("gemma2", post=None)) >= {identities.SUM, identities.REMOVAL}
    assert failed(broken("olmo2", post=None)) >= {identities.SUM, identities.REMOVAL}


def test_a_norm_declared_but_read_before_it():
    assert identities.VALUES in failed(broken("gemma2", update="out:mlp"))


def test_a_scale_left_out():
    assert failed(broken("granite", scale=1.0)) >= {identities.SUM, identities.REMOVAL}


def test_a_parallel_block_taken_for_a_serial_one():
    assert failed(broken("gptj", residual="in:.")) >= {identities.SUM}


def test_the_output_after_the_norm_of_a_post_norm_block():
    assert failed(broken("bert", output="out:.")) >= {identities.SUM, identities.LENS}


@pytest.mark.parametrize(
    ("name", "top"),
    [
        ("llama", Top(())),
        ("gemma2", Top(("norm",))),
        ("granite", Top(("norm",))),
        ("bart", Top(("decoder.layers.-1.final_layer_norm",))),
        ("roberta", Top(("encoder.layer.-1.output.LayerNorm", "lm_head.dense", "lm_head.layer_norm"))),
    ],
)
def test_a_top_with_a_step_left_out(name, top):
    assert failed(broken(name, top=top)) == {identities.LENS}


def test_an_edit_that_does_not_reach_the_layer(monkeypatch):
    from ffscope.models.edits import Edit

    model = broken("llama")
    monkeypatch.setattr(Edit, "readers", lambda self: iter(()))
    assert failed(model) == {identities.ZERO}


def test_an_edit_that_changes_what_it_should_not(monkeypatch):
    from ffscope.models.edits import Edit

    model = broken("llama")
    monkeypatch.setattr(Edit, "_rows", lambda self, length, past: [0])
    assert identities.NO_CHANGE in failed(model)


def test_loading_raises_and_says_what_is_wrong():
    with pytest.raises(
        ProofError,
        match="The layout of 'granite' does not fit this model: the identity «.*» has a relative error of .* in layers 0 to 2",
    ):
        prove(broken("granite", scale=1.0))


def test_layers_are_told_apart():
    model = broken("llama")
    model.layer(1).parts[0].act = torch.nn.functional.relu
    findings = [finding for finding in check(model) if finding.identity == identities.KEYS]
    assert [(finding.layers, finding.holds) for finding in findings] == [((0,), True), ((1,), False), ((2,), True)]


def test_a_layer_that_runs_twice_is_refused():
    model = broken("llama")
    mlp = model.model.model.layers[1].mlp
    once = mlp.forward
    mlp.forward = lambda x: (once(x) + once(x)) / 2
    with pytest.raises(ProofError, match="Feed-forward layer 1 of this llama ran 2 times"):
        check(model)


def test_a_layer_that_bypasses_its_projection_is_refused():
    model = broken("llama")
    mlp = model.model.model.layers[1].mlp
    mlp.forward = lambda x: (mlp.act_fn(mlp.gate_proj(x)) * mlp.up_proj(x)) @ mlp.down_proj.weight.T
    with pytest.raises(ProofError, match="did not run in this pass"):
        check(model)


def test_nan_does_not_hold():
    model = broken("llama")
    with torch.no_grad():
        model.model.model.layers[0].mlp.down_proj.weight[0, 0] = float("nan")
    assert failed(model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_hold_within_their_rounding(dtype, monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)  # some virtual machines crash in its bf16 kernels
    hf_model = tiny.make("llama").to(dtype)
    model = MemoryModel(hf_model, None, FAMILIES["llama"])
    prove(model)
    assert failed(model) == set()


def test_an_unembedding_without_logits_is_not_passed_over():
    import transformers as hf

    hf_model = tiny.build(hf.BertForPreTraining, hf.BertConfig, tiny._BERT)
    assert failed(MemoryModel(hf_model, None, FAMILIES["bert"])) == set()
    wrong = MemoryModel(hf_model, None, replace(FAMILIES["bert"], tops=(Top(()),)))
    assert failed(wrong) == {identities.LENS}


def test_heads_that_take_one_text_at_a_time():
    import transformers as hf

    arguments = {**tiny._LLAMA, "pad_token_id": None}
    hf_model = tiny.build(hf.LlamaForSequenceClassification, hf.LlamaConfig, arguments)
    assert failed(MemoryModel(hf_model, None, FAMILIES["llama"])) == set()


def test_blocks_of_two_kinds_with_the_same_modules():
    """A discovered layout belongs to its own block, even where another block has modules of the same names."""
    hf_model = tiny.make("gpt_neox")
    hf_model.gpt_neox.layers[1].use_parallel_residual = False
    hf_model.config.model_type = "two_kinds"
    residuals = [block.residual for block in read(hf_model).family.blocks]
    assert [residual.startswith("in:. + out:attention") for residual in residuals] == [True, False, True]
