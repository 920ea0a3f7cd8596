"""A text and a model: what every layer predicts at every position of a prompt, who makes it so at one, what interventions change;
and the coefficients of one memory at every token of sentences.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ffscope.analysis.trace import Step, steps
from ffscope.axes import Array, Float, Int
from ffscope.cancellation import Stop, raise_if_stopped
from ffscope.errors import CoefficientError, InputError
from ffscope.live.interventions import Interventions, applied, apply, place, placed, touched
from ffscope.live.responses import Choice, Grid, PromptReading
from ffscope.memory_name import Memory
from ffscope.models.hooks import hooked
from ffscope.models.inputs import Inputs
from ffscope.models.lenses.base import Lens
from ffscope.models.memory_model import EnoughSeen, MemoryModel, Trace
from ffscope.models.parts import Part
from ffscope.models.ranking import probabilities_of, rank_of, ranked, top
from ffscope.search.passes import by_length, sentence_inputs
from ffscope.tokens import spelling

_READINGS = ("residual", "output", "none")
_LIKELY = 20  # tokens of the distribution, of either run
_TOP = 10  # tokens of a cell
_TOKENS = 2**12  # in a batch
_PASS = 64  # tokens of padding that take as long as another pass: about 30 on one core, more on several or on a GPU


# --- a text as it is asked for ---


class Asked(NamedTuple):
    """A text as the model is given it, as in a study: behind BOS, and in a decoder that has an encoder behind its start token."""

    text: str
    sentence: list[int]  # without anything in front
    inputs: Inputs

    @property
    def ids(self) -> list[int]:
        """What the layers that predict see, one id for each of their positions."""
        seen = self.inputs["decoder_input_ids" if "decoder_input_ids" in self.inputs else "input_ids"]
        return seen[0].tolist()


def ask(model: MemoryModel, text: str, *, bos: int | None, most: int) -> Asked:
    """A text, refused where it is empty, too long or not text."""
    ids = model.encode(text, bos=bos is not None)["input_ids"][0].tolist()
    if len(ids) > most:
        raise InputError(f"The text has {len(ids)} tokens, BOS included; expected at most {most}. Shorten it.")
    sentence = ids if bos is None else ids[1:]
    return Asked(text, sentence, sentence_inputs(model, np.array([sentence]), bos))


def between(what: str, number: int, *, most: int) -> int:
    """A number of things, from 1."""
    if not 1 <= number <= most:
        raise InputError(f"Expected 1 to {most} {what}, found {number}.")
    return number


def predicting(model: MemoryModel) -> list[int]:
    """The layers that lead to the logits: all, or those of the decoder, which come after its encoder's."""
    if not getattr(model.model.config, "is_encoder_decoder", False):
        return list(range(model.layers))
    first = max(layer for layer in range(model.layers) if model.layer(layer).parts[0].depth == 0)
    return list(range(first, model.layers))


@contextmanager
def heeding(model: MemoryModel, stop: Stop) -> Iterator[None]:
    """Within the block, and in this thread, every layer asks before it runs whether to stop; so does every new token."""

    def observe(*_given: object) -> None:
        raise_if_stopped(stop)

    with ExitStack() as stack:
        for layer in range(model.layers):
            stack.enter_context(hooked(model.layer(layer).block, "in", observe))
        yield


def finite(numbers: Tensor, where: str) -> Tensor:
    """Numbers that can be shown; a run that holds others is refused."""
    if not numbers.isfinite().all():
        raise CoefficientError(
            f"The model holds numbers that are not finite in {where}, so nothing can be ranked there. Expected finite ones: "
            "intervene with smaller numbers, or load the model in float32, or bfloat16 for its range."
        )
    return numbers


# --- a prompt ---


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
    raise_if_stopped(stop)
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
        raise_if_stopped(stop)
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


def read_grid(
    lens: Lens,
    states: dict[int, Float[Tensor, "pos hidden"]],
    *,
    predictions: Int[Tensor, "pos"],
    stop: Stop,
) -> Grid:
    """Each layer's states, one for each position, as the lens reads them."""
    grid = Grid(list(states), [], [], [], [])
    for layer, here in states.items():
        tokens, probabilities, ranks, entropies = _row(lens, here, layer, predictions, stop)
        grid.top.append(tokens.tolist())
        grid.probability.append(finite(probabilities, f"the prediction of layer {layer}").tolist())
        grid.rank.append(ranks.tolist())
        grid.entropy.append(finite(entropies, f"the prediction of layer {layer}").tolist())
    return grid


@torch.no_grad()
def _row(
    lens: Lens, states: Float[Tensor, "pos hidden"], layer: int, predictions: Int[Tensor, "pos"], stop: Stop
) -> tuple[Tensor, ...]:
    """One layer's cells, read `chunk` after `chunk`: together their logits would not fit in memory."""
    cells = []
    for some, wanted in zip(states.split(lens.chunk), predictions.split(lens.chunk), strict=True):
        raise_if_stopped(stop)
        logits = lens.states(some, layer)
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        tokens = ranked(logits, _TOP)
        # A probability of 0 adds nothing, though its logarithm is infinite.
        entropies = torch.special.entr(exact.exp()).sum(-1) / math.log(2)
        cells.append((tokens, exact.gather(1, tokens).exp(), rank_of(wanted, logits), entropies))
    return tuple(map(torch.cat, zip(*cells, strict=True)))


# --- one memory in sentences ---


def coefficients_in(
    model: MemoryModel, memory: Memory, *, sentences: Sequence[Sequence[int]], bos: int | None, stop: Stop
) -> list[list[float]]:
    """Of each sentence the coefficient at every token; what stands in front of them is left out."""
    coefficients: list[list[float]] = [[] for _ in sentences]
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    numbers = np.flatnonzero(lengths)
    # Nothing that follows a sentence changes what a causal model holds within it, so padding needs no mask there.
    batches = padded_batches if model.causal else one_length_batches
    with heeding(model, stop):
        for batch in batches(lengths[numbers]):
            rows = numbers[batch].tolist()
            for row, observed in zip(
                rows, _observed(model, memory, [sentences[row] for row in rows], bos), strict=True
            ):
                coefficients[row] = observed
    return coefficients


def one_length_batches(lengths: Array) -> list[Array]:
    """The numbers of sentences, in batches whose sentences have the same length."""
    return by_length(lengths, tokens=_TOKENS, rows=_TOKENS)


def padded_batches(lengths: Array) -> list[Array]:
    """The numbers of sentences, shortest first, in the batches that together take least time: each a pass, and padding."""
    order = np.argsort(lengths, kind="stable")
    best = [(0, 0)]  # of the first so many sentences: the least time, in tokens, and where their last batch starts
    for end, length in enumerate(lengths[order].tolist(), 1):
        starts = range(max(0, end - max(1, _TOKENS // length)), end)
        best.append(min((best[start][0] + _PASS + (end - start) * length, start) for start in starts))
    batches, end = [], len(order)
    while end:
        start = best[end][1]
        batches.append(order[start:end])
        end = start
    return batches[::-1]


def _observed(
    model: MemoryModel, memory: Memory, sentences: Sequence[Sequence[int]], bos: int | None
) -> list[list[float]]:
    """One pass over sentences, padded on the right to one length, which ends at this memory's coefficients."""
    parts = model.layer(memory.layer).parts
    mine = next(part for part in parts if memory.memory < part.offset + part.memories)
    longest = max(map(len, sentences))
    tokens = np.array([[*sentence, *[sentence[-1]] * (longest - len(sentence))] for sentence in sentences])
    observed: list[list[float]] = []

    def observe(part: Part, coefficients: Tensor, _past: int) -> None:
        # From the end, where both stacks of an encoder–decoder hold the sentence.
        here = coefficients[:, -longest:, memory.memory - part.offset].float()
        for row, sentence in zip(here, sentences, strict=True):
            observed.append(finite(row[: len(sentence)], f"layer {memory.layer}").tolist())
        raise EnoughSeen

    with suppress(EnoughSeen), mine.tap(observe):
        model.forward(sentence_inputs(model, tokens, bos))
    return observed
