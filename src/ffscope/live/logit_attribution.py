"""Why one token rather than another: what each memory, and each layer, adds to the difference of their logits.

The logits are the final norm and the unembedding of the sum of all that was written to the residual. With the norm's scale held
as it is in the run, they are linear in that sum, so each term of it has a share of its own, its push.
"""

import torch

from ffscope.errors import InputError
from ffscope.live.cancellation import Stop
from ffscope.live.frozen_norm import LinearLogit, logit_at, refuse_norms_between
from ffscope.live.interventions import Interventions
from ffscope.live.passed import Passed, promotes, run_at, weigh
from ffscope.live.ranked import strongest
from ffscope.live.requests import Asked, place, predicting
from ffscope.live.responses import LayerPush, Push, Why
from ffscope.live.token_lookup import choose
from ffscope.models.memory_model import MemoryModel
from ffscope.tokens import spelling


@torch.no_grad()
def explain(
    model: MemoryModel,
    asked: Asked,
    *,
    interventions: Interventions,
    a: str,
    b: str,
    position: int,
    count: int,
    stop: Stop,
) -> Why:
    """The difference of two tokens' logits at a position of one run, taken apart."""
    vocab = model.lens("norm").unembedding.vocab
    refuse_norms_between(model, predicting(model))
    first, second = choose(model, a, vocab=vocab), choose(model, b, vocab=vocab)
    if first.id == second.id:
        raise InputError(f"Both tokens are {first.token!r} (#{first.id}). Expected two different ones.")
    position = place(position, len(asked.ids))
    passed = run_at(model, asked, interventions=interventions, position=position, stop=stop)
    difference = logit_at(model, passed.states.output[-1][0], a=first.id, b=second.id)
    return Why(
        text=asked.text,
        ids=asked.ids,
        tokens=[spelling(model.tokenizer, token) for token in asked.ids],
        position=position,
        a=first,
        b=second,
        difference=difference.logit,
        total=difference.total,
        start=(passed.start.double() @ difference.along).item(),
        bias=difference.bias,
        layers=_layers(passed, difference),
        memories=_pushes(model, passed, difference, count, stop),
        note=_note(difference),
    )


def _note(difference: LinearLogit) -> str | None:
    if difference.bands:
        return (
            "The two tokens are in different bands of this model's adaptive softmax, and each band has a normaliser of its own; "
            "the pushes add up to the difference before them."
        )
    if difference.cap is None:
        return None
    return f"This model caps its logits at ±{difference.cap:g}; the pushes add up to the difference before the cap."


def _layers(passed: Passed, difference: LinearLogit) -> list[LayerPush]:
    pushes, before = [], passed.start.double()
    for layer, update, output in zip(passed.layers, passed.states.update, passed.states.output, strict=True):
        ff, after = update[0].double(), output[0].double()
        rest = after - before - ff
        pushes.append(LayerPush(layer, (ff @ difference.along).item(), (rest @ difference.along).item()))
        before = after
    return pushes


def _pushes(model: MemoryModel, passed: Passed, difference: LinearLogit, count: int, stop: Stop) -> list[Push]:
    """The strongest pushes over all layers, in either direction."""
    rows, _ = strongest(weigh(model, passed, along=difference.along, stop=stop), by="logit", count=count)
    tokens = promotes(model, {row.memory: row.coefficient for row in rows}, stop=stop)
    return [Push(str(row.memory), row.coefficient, row.push or 0.0, tokens[row.memory]) for row in rows]
