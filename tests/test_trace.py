"""The trace of a prompt, compared with a plain computation."""

import pytest
import torch

import tiny
from ffscope import InputError, read
from ffscope.analysis.trace import case, trace_prediction


@pytest.mark.parametrize(
    ("residual", "ff", "output", "expected"),
    [
        (1, 1, 1, "agreement"),
        (1, 2, 1, "residual"),
        (1, 2, 2, "ffn"),
        (1, 2, 3, "composition"),
        (1, 1, 2, "composition"),
    ],
)
def test_cases(residual, ff, output, expected):
    assert case(residual, ff, output) == expected


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "mixtral"])
def test_the_largest_contributions_come_first(name, tokenizer):
    model = read(tiny.make(name), tokenizer)
    story = trace_prediction(model, "Ab cd", memories=4)
    trace = model.trace("Ab cd")
    for step in story.steps:
        m = trace.coefficients[step.layer][0, -1]
        v = model.values(step.layer)
        if name == "gemma2":
            v = v * (1 + model.layer(step.layer).block.post_feedforward_layernorm.weight)
        sizes = m.abs() * v.norm(dim=-1)
        expected = sizes.sort(descending=True).indices[:4].tolist()
        assert [memory.memory for memory in step.memories] == [f"L{step.layer}.{i}" for i in expected]
        assert step.memories[0].share == pytest.approx((sizes.max() / sizes.sum()).item(), rel=1e-4)
        assert step.active == int((m > 0).sum())
    assert story.steps[-1].after.id == int(trace.logits[0, -1].argmax())
    assert story.prediction[0].probability == pytest.approx(trace.logits[0, -1].softmax(-1).max().item(), rel=1e-4)


def test_a_negative_coefficient_promotes_the_opposite(tokenizer):
    model = read(tiny.make("llama"), tokenizer)
    story = trace_prediction(model, "Ab cd", memories=22)
    logits = model.lens("norm").values(0)
    negative = next(memory for memory in story.steps[0].memories if memory.coefficient < 0)
    index = int(negative.memory.split(".")[1])
    from ffscope.tokens import spelling

    assert negative.promotes[0] == spelling(tokenizer, int(logits[index].argmin()))


def test_an_unknown_position(tokenizer):
    model = read(tiny.make("llama"), tokenizer)
    assert trace_prediction(model, "Ab", position=1).position == 1
    with pytest.raises(InputError, match="There is no position 9: the text has 3 tokens"):
        trace_prediction(model, "Ab", position=9)


def test_the_position_is_in_the_middle(tokenizer):
    model = read(tiny.make("llama"), tokenizer)
    story = trace_prediction(model, "Ab cd", position=2)
    assert story.prediction[0].id == int(torch.argmax(model.trace("Ab cd").logits[0, 2]))


def test_layers_can_be_chosen(tokenizer):
    model = read(tiny.make("llama"), tokenizer)
    whole, part = trace_prediction(model, "Ab cd"), trace_prediction(model, "Ab cd", layers=[2, 0])
    assert part.steps == [whole.steps[2], whole.steps[0]]
