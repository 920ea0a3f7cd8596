"""Tracing, naming and editing memories."""

import threading

import pytest
import torch

import tiny
from ffscope import FfscopeError, InputError, Memory, MemoryNameError, read
from test_families import hooks

IDS = list(range(4, 12))
EDITED = [
    "gpt2",
    "opt",
    "llama",
    "gptj",
    "mixtral",
    "gpt_oss",
    "bert",
]  # plain, flattened, gated, parallel, mixtures, encoder


@pytest.fixture(params=EDITED)
def model(request):
    return read(tiny.make(request.param))


def update_without(model, layer, memory, trace):
    """The update of a trace without one memory's coefficient × value."""
    return trace.update[layer] - trace.coefficients[layer][..., memory, None] * model.values(layer)[memory]


@torch.no_grad()
def test_zeroing_a_memory_takes_its_value_away(model):
    before = model.trace(IDS)
    memory = int(before.coefficients[1][0].abs().sum(0).argmax())
    with model.edit(zero=[f"L1.{memory}"]):
        after = model.trace(IDS)
    assert (after.coefficients[1][..., memory] == 0).all()
    torch.testing.assert_close(after.update[1], update_without(model, 1, memory, before), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(after.residual[1], before.residual[1])
    assert not torch.allclose(after.logits, before.logits)


def test_scaling_and_setting_at_a_position(model):
    before = model.trace(IDS).coefficients[0]
    with model.edit(scale={"L0.3": 5}, set={Memory(0, 7): -1.5}, positions=[2, -1]):
        after = model.trace(IDS).coefficients[0]
    expected = before.clone()
    expected[:, [2, -1], 3] *= 5
    expected[:, [2, -1], 7] = -1.5
    torch.testing.assert_close(after, expected)


def test_edits_nest_inner_last(model):
    with model.edit(set={"L0.3": 2.0}), model.edit(scale={"L0.3": 3.0}):
        inner = model.trace(IDS)
    with model.edit(set={"L0.3": 6.0}):
        plain = model.trace(IDS)
    assert (inner.coefficients[0][..., 3] == 6).all()
    torch.testing.assert_close(inner.logits, plain.logits, atol=1e-5, rtol=1e-4)


def test_an_exception_leaves_no_hook_behind(model):
    before = model.trace(IDS).logits
    with pytest.raises(RuntimeError, match="in the middle"), model.edit(zero=["L0", "L1.2"]):
        assert hooks(model) > 0
        raise RuntimeError("in the middle")
    assert hooks(model) == 0
    assert torch.equal(model.trace(IDS).logits, before)


def test_an_exception_inside_a_pass_leaves_no_hook_behind(model):
    def stumble(*_):
        raise RuntimeError("in the pass")

    handle = model.layer(2).block.register_forward_hook(stumble)
    with pytest.raises(InputError, match="does not run on these inputs .*: in the pass"), model.edit(zero=["L0"]):
        model.trace(IDS)
    handle.remove()
    assert hooks(model) == 0


def test_a_misnamed_edit_changes_nothing(model):
    with pytest.raises(MemoryNameError), model.edit(zero=["L0.1", "L0.99999"]):
        pass
    assert hooks(model) == 0


# Threads that wait for each other take long; one dense model and one with experts will do.
@pytest.mark.parametrize(
    "model",
    [pytest.param(name, marks=() if name in ("gpt2", "mixtral") else pytest.mark.slow) for name in EDITED],
    indirect=True,
)
def test_an_edit_is_invisible_in_another_thread(model):
    """Two threads run at once, each a hundred times; each sees its own edit, a third sees none."""
    plain = model.trace(IDS).logits
    edits = [{"set": {"L0.3": 9.0}}, {"set": {"L0.3": -9.0}}, {}]
    expected = []
    for edit in edits:
        with model.edit(**edit):
            expected.append(model.trace(IDS).logits)
    assert torch.equal(expected[2], plain)
    assert not torch.equal(expected[0], expected[1])
    wrong: list[str] = []
    start = threading.Barrier(len(edits))

    def work(edit, wanted):
        start.wait()
        for _ in range(30):
            with model.edit(**edit):
                if not torch.equal(model.trace(IDS).logits, wanted):
                    wrong.append(str(edit))

    threads = [threading.Thread(target=work, args=pair) for pair in zip(edits, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert hooks(model) == 0


def test_an_edit_holds_for_the_model_itself():
    """Whoever calls the transformers model inside an edit gets the edited model, generation included."""
    model = read(tiny.make("llama"))
    ids = torch.tensor([IDS])
    with model.edit(set={"L1.4": 30.0}):
        edited = model.trace(IDS).logits
        torch.testing.assert_close(model.model(ids).logits, edited)
        with_cache = model.model.generate(ids, max_new_tokens=4, do_sample=False)
        without = model.model.generate(ids, max_new_tokens=4, do_sample=False, use_cache=False)
    assert torch.equal(with_cache, without)


@pytest.mark.parametrize("name", ["llama", "gpt2", "opt", "gptj", "mixtral", "t5"])
def test_a_position_means_the_same_with_a_cache(name):
    """GPT-2 passes its cache by position, others by name."""
    model = read(tiny.make(name))
    ids = torch.tensor([IDS])
    which = "decoder_input_ids" if name == "t5" else "input_ids"
    rest = {"input_ids": ids} if name == "t5" else {}
    with torch.no_grad(), model.edit(set={f"L{model.layers - 1}.2": 9.0}, positions=4):
        whole = model.model(**rest, **{which: ids}).logits
        cache = model.model(**rest, **{which: ids[:, :4]}, use_cache=True).past_key_values
        step = model.model(**rest, **{which: ids[:, 4:5]}, past_key_values=cache).logits
    torch.testing.assert_close(step[:, 0], whole[:, 4], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(whole[:, 4], model.model(**rest, **{which: ids}).logits[:, 4])


def test_positions_count_from_the_start_in_generation_with_a_cache():
    model = read(tiny.make("llama"))
    ids = torch.tensor([IDS])
    at = len(IDS) + 1  # the second generated token
    with model.edit(set={"L1.4": 40.0, "L0.2": -40.0}, positions=at):
        with_cache = model.model.generate(ids, max_new_tokens=5, min_new_tokens=5, do_sample=False)
        without = model.model.generate(ids, max_new_tokens=5, min_new_tokens=5, do_sample=False, use_cache=False)
        edited = model.trace(with_cache[0]).logits
    assert torch.equal(with_cache, without)
    assert not torch.allclose(edited[0, at], model.trace(with_cache[0]).logits[0, at])


def test_a_memory_edited_twice_is_refused(model):
    with (
        pytest.raises(InputError, match=r"L0\.3 is edited twice\. Name each memory once, or nest"),
        model.edit(zero=["L0.3"], scale={"L0.3": 2}),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("L1.999", r"There is no memory L1\.999\. Layer 1 has memories 0 to 21\."),
        ("L7.0", r"There is no layer 7\. This model has layers 0 to 2\."),
        ("12.345", r"'12\.345' is not a memory's name.*Did you mean 'L12\.345'\?"),
        ("L1-2", r"Did you mean 'L1\.2'\?"),
        ("memory", r"such as 'L12\.345'\.$"),
        ("L-1.2", r"is not a memory's name"),
        ("L١.٢", r"is not a memory's name"),
    ],
)
def test_misspelt_and_missing_memories(name, message):
    model = read(tiny.make("llama"))
    with pytest.raises(MemoryNameError, match=message):
        model.memory(name)


def test_a_whole_layer_is_not_a_memory():
    with pytest.raises(
        MemoryNameError, match=r"'L3' names a whole layer\. Expected the name of a memory, such as 'L3\.0'"
    ):
        Memory.parse("L3")
    assert str(Memory.parse("L12.345")) == "L12.345"


def test_layers_can_be_chosen():
    model = read(tiny.make("llama"))
    whole, part = model.trace(IDS), model.trace(IDS, layers=[2, 0])
    assert part.layers == (2, 0)
    assert repr(part) == "Trace(2 layers, batch 1, 8 positions)"
    assert torch.equal(part.coefficients[0], whole.coefficients[2])
    assert torch.equal(part.output[1], whole.output[0])
    with pytest.raises(MemoryNameError, match="There is no layer 3"):
        model.trace(IDS, layers=[3])


def test_traced_tensors_survive_changes_in_place():
    """Falcon adds the attention's output to the feed-forward layer's in place."""
    model = read(tiny.make("falcon"))
    trace = model.trace(IDS)
    part = model.layer(0).parts[0]
    update = trace.coefficients[0] @ part.values() + model.layer(0).block.mlp.dense_4h_to_h.bias
    torch.testing.assert_close(trace.update[0], update, atol=1e-5, rtol=1e-5)


def test_bos_is_added_to_text_but_not_to_ids(tokenizer):
    model = read(tiny.make("llama"), tokenizer)
    text = model.trace("Ab cd")
    assert text.ids[0].tolist() == [2, *tokenizer.encode("Ab cd", add_special_tokens=False)]
    assert text.tokens == [["<s>", "A", "b", "Ġ", "c", "d"]]
    assert model.trace("Ab cd", bos=False).ids.shape[1] == text.ids.shape[1] - 1
    assert model.trace(IDS).ids[0].tolist() == IDS


def test_an_encoder_decoder_reads_the_same_text_in_both_stacks():
    model = read(tiny.make("bart"))
    trace = model.trace(IDS)
    assert trace.inputs["decoder_input_ids"][0].tolist() == [3, *IDS[:-1]]
    assert len(trace.coefficients) == 5


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"set": {"L0.1": float("nan")}}, r"Expected a finite number for L0\.1, found nan"),
        ({"scale": {"L0.1": "2"}}, "Expected a finite number for L0.1, found '2'"),
        ({"zero": [3]}, "3 is not a memory's name"),
        ({"positions": 1.5, "zero": ["L0.1"]}, "Expected positions as integers"),
        ({"scale": ["L0.1"]}, "Expected `scale` as a dictionary from memories to numbers"),
    ],
)
def test_edits_that_make_no_sense(edit, message):
    model = read(tiny.make("llama"))
    with pytest.raises(FfscopeError, match=message), model.edit(**edit):
        pass


def test_positions_may_be_any_numbers():
    import numpy as np

    model = read(tiny.make("llama"))
    expected = model.trace(IDS).coefficients
    for positions in ((p for p in (0, 1)), np.array([0, 1]), [np.int64(0), 1]):
        with model.edit(zero=Memory(0, 3), scale={"L1.3": 2}, positions=positions):
            coefficients = model.trace(IDS).coefficients
        assert (coefficients[0][:, :2, 3] == 0).all()
        assert not torch.equal(coefficients[1][:, :2, 3], expected[1][:, :2, 3])
        assert torch.equal(coefficients[0][:, 2:, 3], expected[0][:, 2:, 3])


def test_values_are_the_models_own_and_ask_for_no_gradient(model):
    assert not model.values(0).requires_grad
    assert model.lens("norm").values(0).numpy().shape == (model.memories[0], 67)
    with pytest.raises(MemoryNameError, match="There is no layer '0'"):
        model.keys("0")
