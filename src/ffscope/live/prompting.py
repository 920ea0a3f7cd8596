"""A prompt, read: what every layer predicts at every position, who makes it so at one, and what interventions change."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ffscope.analysis.trace import Step, steps
from ffscope.axes import Float
from ffscope.errors import InputError
from ffscope.live.cancellation import Stop, heed
from ffscope.live.editing import applied, apply, placed, touched
from ffscope.live.grid import read_grid
from ffscope.live.interventions import Interventions
from ffscope.live.requests import Asked, finite, heeding, place, predicting
from ffscope.live.responses import Choice, Grid, PromptReading
from ffscope.models.lenses.base import Lens
from ffscope.models.memory_model import MemoryModel, Trace
from ffscope.models.ranking import probabilities_of, rank_of, ranked, top
from ffscope.tokens import spelling

_READINGS = ("residual", "output", "none")
_LIKELY = 20  # tokens of the distribution, of either run


def read_prompt(
    model: MemoryModel,
    asked: Asked,
    *,
    interventions: Interventions,
    position: int,
    lens: str,
    of: str,
    memories: int,
    stop: Stop,
) -> PromptReading:
    """One run with the interventions, and where there are any one without."""
    if of not in _READINGS:
        raise InputError(f"There is no {of[:60]!r} to read. Choose one of: {', '.join(_READINGS)}.")
    reading = model.lens(lens)
    position = place(position, len(asked.ids))
    with heeding(model, stop):
        before = model.trace(asked.inputs, layers=touched(interventions)) if interventions.any else None
        with apply(model, interventions):
            trace = model.trace(asked.inputs, layers=predicting(model))
    logits = _logits(trace)
    grid = None if of == "none" else _grid(reading, trace, of, logits, stop)
    heed(stop)
    found = PromptReading(
        text=asked.text,
        ids=asked.ids,
        tokens=[spelling(model.tokenizer, token) for token in asked.ids],
        position=position,
        lens=lens,
        of=of,
        grid=grid,
        spellings={},
        steps=list(_heeded(steps(model, trace, position=position, memories=memories, lens=reading), stop)),
        distribution=_distribution(model, *_in_order(before, logits, position)),
        # From the end, where both stacks of an encoder–decoder hold the text.
        interventions=[] if before is None else applied(interventions, before, position=position - len(asked.ids)),
        positions=placed(interventions, length=len(asked.ids)) if interventions.any else None,
    )
    found.spellings.update((str(token), spelling(model.tokenizer, token)) for token in sorted(_mentioned(found)))
    return found


def _grid(lens: Lens, trace: Trace, of: str, logits: Tensor, stop: Stop) -> Grid:
    """The dearest part, which another position leaves as it is."""
    states = trace.residual if of == "residual" else trace.output
    by_layer = {layer: state[0] for layer, state in zip(trace.layers, states, strict=True)}
    return read_grid(lens, by_layer, predictions=top(logits), stop=stop)


def _logits(trace: Trace) -> Float[Tensor, "pos vocab"]:
    assert trace.logits is not None  # a model with a lens has logits
    for layer, coefficients, output in zip(trace.layers, trace.coefficients, trace.output, strict=True):
        finite(coefficients, f"layer {layer}")
        finite(output, f"layer {layer}")
    return trace.logits[0]


def _heeded(steps: Iterator[Step], stop: Stop) -> Iterator[Step]:
    for step in steps:
        heed(stop)
        yield step


def _in_order(before: Trace | None, logits: Tensor, position: int) -> tuple[Tensor, Tensor | None]:
    """The logits at the position, of the run without the interventions first; None where there are none."""
    if before is None:
        return logits[position], None
    return _logits(before)[position], logits[position]


@torch.no_grad()
def _distribution(
    model: MemoryModel, before: Float[Tensor, "vocab"], after: Float[Tensor, "vocab"] | None
) -> list[Choice]:
    """The most likely tokens of either run, in the order of the later."""
    runs = torch.stack([before] if after is None else [before, after])
    tokens = ranked(runs, _LIKELY).unique()
    probabilities = finite(probabilities_of(tokens.expand(len(runs), -1), runs), "the prediction").tolist()
    ranks = torch.stack([rank_of(tokens, run.expand(len(tokens), -1)) for run in runs]).tolist()
    order = sorted(range(len(tokens)), key=ranks[-1].__getitem__)
    return [
        Choice(
            id=(token := int(tokens[i])),
            token=spelling(model.tokenizer, token),
            before=probabilities[0][i],
            after=None if after is None else probabilities[1][i],
            before_rank=ranks[0][i],
            after_rank=None if after is None else ranks[1][i],
        )
        for i in order
    ]


def _mentioned(reading: PromptReading) -> set[int]:
    rows = reading.grid.top if reading.grid else []
    cells = (token for row in rows for cell in row for token in cell)
    predicted = (one.id for step in reading.steps for one in (step.before, step.ff, step.after))
    return {*reading.ids, *cells, *predicted, *(choice.id for choice in reading.distribution)}
