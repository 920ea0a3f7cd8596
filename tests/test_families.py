"""Every family of the table, on a tiny random model of it."""

import pytest
import torch

import tiny
from ffscope import MemoryModel, check, read
from ffscope.models.families import FAMILIES
from ffscope.models.inputs import random_inputs


@pytest.fixture(params=tiny.TABLE, scope="module")
def model(request) -> MemoryModel:
    return read(tiny.make(request.param))


def test_every_row_of_the_table_has_a_tiny_model():
    model_types = {tiny.TABLE[name][1](**tiny.TABLE[name][2]).model_type for name in tiny.TABLE}
    assert model_types | {"gemma3"} == set(FAMILIES)  # gemma3 is gemma3_text inside a model that also sees


def test_every_identity_holds(model):
    findings = check(model)
    assert [finding for finding in findings if not finding.holds] == []
    assert len(findings) == (7 if model.top else 6)


def test_the_trace_has_transformers_own_logits(model):
    inputs = random_inputs(model.model, batch=2, length=6, seed=1)
    trace = model.trace(inputs)
    with torch.no_grad():
        expected = model.model(**inputs)
    if model.top is None:
        assert trace.logits is None
    else:
        torch.testing.assert_close(trace.logits, expected.logits, rtol=0, atol=1e-5)


def test_the_last_state_read_by_the_norm_lens_is_the_models_prediction(model):
    if model.top is None:
        pytest.skip("no unembedding")
    inputs = random_inputs(model.model, batch=2, length=6, seed=2)
    trace = model.trace(inputs)
    with torch.no_grad():
        read_off = model.lens("norm").states(trace.output[-1], trace.layers[-1])
        expected = model.model(**inputs).logits
    assert torch.equal(read_off.argmax(-1), expected.argmax(-1))


def test_shapes(model):
    inputs = random_inputs(model.model, batch=2, length=6)
    trace = model.trace(inputs)
    assert len(model.memories) == model.layers == len(trace.coefficients)
    for layer in range(model.layers):
        keys = model.keys(layer)
        for key in keys if isinstance(keys, tuple) else (keys,):
            assert key.shape == (model.memories[layer], model.hidden)
        assert isinstance(keys, tuple) == model.layer(layer).gated
        assert model.values(layer).shape == (model.memories[layer], model.hidden)
        assert trace.coefficients[layer].shape[-1] == model.memories[layer]
        for states in (trace.residual, trace.update, trace.output):
            assert states[layer].shape == (*trace.coefficients[layer].shape[:2], model.hidden)


def test_no_hook_is_left_behind(model):
    model.trace(random_inputs(model.model, batch=1, length=4))
    check(model)
    assert hooks(model) == 0


def hooks(model: MemoryModel) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.model.modules())


def test_unrouted_experts_have_coefficient_zero():
    model = read(tiny.make("mixtral"))
    trace = model.trace(torch.arange(4, 11))
    experts = trace.coefficients[0].unflatten(-1, (5, 20))
    routed = experts.abs().sum(-1).gt(0).sum(-1)
    assert torch.equal(routed, torch.full_like(routed, 2))


def test_experts_against_a_plain_loop():
    """Coefficient × value, expert by expert, from the module's weights alone."""
    model = read(tiny.make("qwen3_moe"))
    block = model.layer(0).block
    inputs = random_inputs(model.model, batch=1, length=5)
    trace = model.trace(inputs)
    x = block.post_attention_layernorm(trace.residual[0])[0]
    router, experts = block.mlp.gate, block.mlp.experts
    with torch.no_grad():
        probabilities = (x @ router.weight.T).softmax(-1)
        for token in range(x.shape[0]):
            chosen = probabilities[token].topk(2)
            weights = chosen.values / chosen.values.sum() if router.norm_topk_prob else chosen.values
            for expert, weight in zip(chosen.indices, weights, strict=True):
                gate, up = (experts.gate_up_proj[expert] @ x[token]).chunk(2)
                expected = torch.nn.functional.silu(gate) * up * weight
                start = int(expert) * 16
                torch.testing.assert_close(
                    trace.coefficients[0][0, token, start : start + 16], expected, atol=1e-5, rtol=1e-5
                )
                torch.testing.assert_close(model.values(0)[start : start + 16], experts.down_proj[expert].T)


def test_attributes_that_change_the_feed_forward_layer_are_refused():
    from ffscope import LayoutError

    model = tiny.make("bert")
    model.config.chunk_size_feed_forward = 2
    with pytest.raises(
        LayoutError, match="chunk_size_feed_forward=2 is not supported.*Expected chunk_size_feed_forward=0"
    ):
        read(model)
    model = tiny.make("bloom")
    model.config.slow_but_exact = True
    with pytest.raises(LayoutError, match="slow_but_exact=True is not supported"):
        read(model)


def test_multimodal_gemma3_is_read_through_its_language_model():
    import transformers as hf

    text = tiny.TABLE["gemma3"][2]
    vision = {
        "hidden_size": 8,
        "intermediate_size": 10,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 8,
        "patch_size": 4,
    }
    arguments = {"text_config": text, "vision_config": vision, "mm_tokens_per_image": 1, "image_token_index": 66}
    config = hf.Gemma3Config(**arguments)
    model = read(hf.Gemma3ForConditionalGeneration(config).eval())
    assert model.layers == 3
    assert all(finding.holds for finding in check(model))
