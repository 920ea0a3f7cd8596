"""The ranking of memories by their effect on a prediction, compared with torch's own gradients and with the exact change."""

import gc
import math
import sys
import threading
import time

import pytest
import torch

import tiny
from ffscope import Memory
from ffscope.cancellation import Stopped
from ffscope.errors import CoefficientError, GradientError
from ffscope.live.interventions import Interventions, Target
from ffscope.live.model import Live
from ffscope.models.gradient_pass import GradientPass
from ffscope.models.loading import make_memory_model
from test_live import CHANGED, TEXT, TEXTS, inputs_of, live_of, plain

ALL = 1000  # more than a tiny model has
SCALED = Interventions.parse("L0.3,L2.1", "L0.4:-2.5,L2.7:1.5")
T5 = [*(f"encoder.block.{i}.layer.1.DenseReluDense.wo" for i in range(3))]
T5 += [*(f"decoder.block.{i}.layer.2.DenseReluDense.wo" for i in range(2))]
# The modules whose weights are the values of each layer.
VALUES = {
    "gpt2": [f"transformer.h.{i}.mlp.c_proj" for i in range(3)],
    "llama": [f"model.layers.{i}.mlp.down_proj" for i in range(3)],
    "gemma2": [f"model.layers.{i}.mlp.down_proj" for i in range(3)],
    "qwen3_moe": [f"model.layers.{i}.mlp.{module}" for i, module in enumerate(["experts", "down_proj", "experts"])],
    "opt post-norm": [f"model.decoder.layers.{i}.fc2" for i in range(3)],
    "falcon": [f"transformer.h.{i}.mlp.dense_4h_to_h" for i in range(3)],
    "bert": [f"bert.encoder.layer.{i}.output.dense" for i in range(3)],
    "t5": T5,
    "adaptive_lm": [f"layers.{i}.fc2" for i in range(3)],
}


def effects_of(ranked):
    return {row.memory: row.effect for row in ranked.memories}


def weight_of(name, path, gates):
    """A weight's name in the model, and the gates in its shape: one per memory."""
    if path.endswith("experts"):
        return f"{path}.down_proj", gates.reshape(5, 1, -1)  # experts × hidden × memories
    return f"{path}.weight", gates[:, None] if name == "gpt2" else gates  # a Conv1D is stored transposed


def plain_effects(live, name, position, token, factors=()):
    """−∂ log p / ∂ gate, with a gate on every value; with it, values are multiplied by factors."""
    model = live.model.model
    gates = [torch.ones(count, requires_grad=True) for count in live.model.memories]
    scales = [torch.ones(count) for count in live.model.memories]
    for (layer, memory), factor in factors:
        scales[layer][memory] = factor
    weights = {}
    for path, gate, scale in zip(VALUES[name], gates, scales, strict=True):
        weight, gate = weight_of(name, path, gate * scale)
        weights[weight] = dict(model.named_parameters())[weight] * gate
    result = torch.func.functional_call(model, weights, kwargs=inputs_of(live.model, TEXT))
    gradients = torch.autograd.grad(result.logits[0, position].log_softmax(-1)[token], gates)
    return {f"L{i}.{j}": -g for i, of_layer in enumerate(gradients) for j, g in enumerate(of_layer.tolist())}


def assert_same(effects, expected):
    size = max(map(abs, expected.values()))
    assert effects == {memory: pytest.approx(effect, rel=1e-5, abs=1e-6 * size) for memory, effect in expected.items()}


@pytest.mark.parametrize("name", VALUES)
def test_effects_are_the_gradients_of_torch(name, tokenizer):
    live = live_of(name, tokenizer)
    for position, target in ((-1, None), (4, "b")):
        ranked = live.memories(TEXT, by="effect", position=position, target=target, count=ALL)
        plain(ranked)
        logits = live.model.forward(inputs_of(live.model, TEXT)).logits[0, position]
        assert ranked.target.id == (logits.argmax() if target is None else tokenizer.encode("b")[0])
        assert_same(effects_of(ranked), plain_effects(live, name, position, ranked.target.id))
        sizes = [abs(row.effect) for row in ranked.memories]
        assert sizes == sorted(sizes, reverse=True)
    assert live.memories(TEXT, by="effect", position=4, target="b", count=3).memories == ranked.memories[:3]


@pytest.mark.parametrize("name", ["gpt2", "qwen3_moe", "gemma2", "bert", "t5"])
def test_effects_are_those_of_the_run_with_the_interventions(name, tokenizer):
    live = live_of(name, tokenizer)
    factors = [((0, 3), 0), ((2, 1), 0), ((0, 4), -2.5), ((2, 7), 1.5)]
    ranked = live.memories(TEXT, by="effect", interventions=SCALED, count=ALL)
    effects = effects_of(ranked)
    assert_same(effects, plain_effects(live, name, -1, ranked.target.id, factors))
    assert effects["L0.3"] == effects["L2.1"] == 0


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_a_memory_set_at_some_positions_has_the_effect_of_these_and_of_the_others(name, tokenizer):
    live = live_of(name, tokenizer)
    coefficients = {}

    def set_some(module, args):
        coefficients[0] = args[0].clone()
        coefficients[0][:, [1, -1], 7] = 1.5
        coefficients[0] = coefficients[0].detach().requires_grad_()
        return (coefficients[0],)

    interventions = Interventions.parse("", "", "L0.7:1.5", "1,-1")
    ranked = live.memories(TEXT, by="effect", interventions=interventions, count=ALL)
    handle = live.model.model.get_submodule(VALUES[name][0]).register_forward_pre_hook(set_some)
    logits = live.model.model(**inputs_of(live.model, TEXT)).logits[0, -1]
    handle.remove()
    (gradient,) = torch.autograd.grad(logits.log_softmax(-1)[ranked.target.id], coefficients[0])
    expected = -(coefficients[0].detach() * gradient).sum((0, 1))
    effects = {memory: effect for memory, effect in effects_of(ranked).items() if memory.startswith("L0.")}
    assert_same(effects, {f"L0.{i}": effect for i, effect in enumerate(expected.tolist())})


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "opt post-norm", "bert", "t5", "adaptive_lm"])
def test_for_a_small_coefficient_the_effect_is_the_exact_change(name, tokenizer):
    live = Live(make_memory_model(tiny.make(name).double(), tokenizer), bos=True)
    small = Interventions(set=((Target(1, 7), 1e-4),))
    ranked = live.memories(TEXT, by="effect", interventions=small, count=ALL)

    def log_prob(coefficient):
        with live.model.edit(set={"L1.7": coefficient}):
            logits = live.model.forward(inputs_of(live.model, TEXT)).logits[0, -1]
        return logits.log_softmax(-1)[ranked.target.id].item()

    exact = log_prob(0.0) - log_prob(1e-4)
    assert abs(exact) > 1e-8
    assert effects_of(ranked)["L1.7"] == pytest.approx(exact, rel=1e-2)


@pytest.mark.parametrize("name", tiny.sweep(TEXTS))
def test_every_model_ranks_its_memories_by_effect(name, tokenizer):
    live = live_of(name, tokenizer)
    ranked = live.memories(TEXT, by="effect", interventions=CHANGED, position=3, count=ALL)
    plain(ranked)
    assert ranked.by == "effect"
    assert {Memory.parse(row.memory).layer for row in ranked.memories} == set(range(live.model.layers))
    assert len(ranked.memories) == sum(live.model.memories)
    assert sum(row.share_of_all for row in ranked.memories) == pytest.approx(1, rel=1e-3)
    # Everything else is as in the other rankings, which list the predicting layers.
    others = {row.memory: row for row in live.memories(TEXT, interventions=CHANGED, position=3, count=ALL).memories}
    for row in ranked.memories:
        if row.memory in others:
            other = others[row.memory]
            assert (row.coefficient, row.size, row.push) == (other.coefficient, other.size, other.push)
        else:
            assert row.push is None


def test_the_text_after_the_position_does_not_matter(tokenizer):
    live = live_of("llama", tokenizer)
    shorter = live.memories(TEXT[:5], by="effect", target="a", count=ALL)
    longer = live.memories(TEXT, by="effect", target="a", position=5, count=ALL)
    assert_same(effects_of(longer), effects_of(shorter))


def test_an_encoder_without_the_position_still_has_effects(tokenizer):
    live = live_of("t5", tokenizer, bos=False)
    ranked = live.memories("ab", by="effect", position=0, count=ALL)
    plain(ranked)
    for row in ranked.memories:
        in_encoder = row.memory < "L3"
        assert (row.coefficient is None) == in_encoder
        assert (row.size == row.share_of_layer == 0) or not in_encoder
    assert any(row.effect for row in ranked.memories if row.memory < "L3")


def test_other_rankings_make_no_gradients(tokenizer, monkeypatch):
    monkeypatch.setattr(GradientPass, "forward", lambda *_: pytest.fail("a gradient"))
    for by in (None, "logit", "size"):
        assert {row.effect for row in live_of("llama", tokenizer).memories(TEXT, by=by).memories} == {None}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_effects_in_low_precision(dtype, tokenizer):
    live = Live(make_memory_model(tiny.make("llama").to(dtype), tokenizer), bos=True)
    effects = effects_of(live.memories(TEXT, by="effect", target="a", count=ALL))
    exact = effects_of(live_of("llama", tokenizer).memories(TEXT, by="effect", target="a", count=ALL))
    largest = max(map(abs, exact.values()))
    assert effects == {memory: pytest.approx(effect, abs=0.1 * largest) for memory, effect in exact.items()}
    if dtype == torch.float16:
        many = Interventions(set=tuple((Target(0, i), 1e6) for i in range(22)))
        with pytest.raises(CoefficientError, match="finite numbers"):
            live.memories(TEXT, by="effect", interventions=many)


def test_a_model_that_cannot_be_differentiated_says_so(tokenizer):
    live = live_of("llama", tokenizer)
    layer = live.model.model.model.layers[1].mlp.up_proj
    layer.forward = torch.no_grad()(layer.forward)
    with pytest.raises(GradientError, match="this model cannot be differentiated.*a Linear through which no gradient"):
        live.memories(TEXT, by="effect")
    assert live.memories(TEXT).by == "logit"


def graphs():
    """The tensors that belong to the graph of a pass."""
    return [each for each in gc.get_objects() if type(each) is torch.Tensor and each.grad_fn is not None]


def test_nothing_of_the_pass_remains(tokenizer):
    live = live_of("qwen3_moe", tokenizer)
    trained = [weight for weight in live.model.model.parameters() if weight.requires_grad]
    gc.collect()
    before = len(graphs())
    gc.disable()
    try:
        live.memories(TEXT, by="effect", interventions=SCALED)
        assert len(graphs()) == before  # freed at once, not by the garbage collector
    finally:
        gc.enable()
    calls = iter(range(10**6))
    with pytest.raises(Stopped):
        live.memories(TEXT, by="effect", stop=lambda: next(calls) > 12)
    gc.collect()
    assert len(graphs()) == before
    assert trained == [weight for weight in live.model.model.parameters() if weight.requires_grad]
    assert all(weight.grad is None for weight in trained)


def test_several_threads_may_ask_for_effects(tokenizer):
    live = live_of("llama", tokenizer)
    options = [
        {"by": "effect"},
        {"by": "effect", "interventions": CHANGED},
        {"by": "effect", "target": "b", "position": 3},
        {"interventions": CHANGED},
    ]
    expected = [live.memories(TEXT, **each) for each in options]
    wrong = []

    def ask(number):
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            try:
                ranked = live.memories(TEXT, **options[number])
            except Exception as error:  # a thread's own errors would be lost
                wrong.append(error)
                return
            if ranked != expected[number]:
                wrong.append(number)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=ask, args=(number % 4,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
    assert all(weight.requires_grad for weight in live.model.model.parameters())
    assert math.isfinite(expected[0].memories[0].effect)
