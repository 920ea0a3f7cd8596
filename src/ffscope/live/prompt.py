"""What every layer predicts at every position of a prompt, which memories determine it at one position, and what interventions
change; also the coefficients of one memory at every token of sentences.
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
from ffscope.live.interventions import (
    Interventions,
    apply,
    changed_layers,
    describe_applied,
    position_from_start,
    positions_from_start,
)
from ffscope.live.responses import Choice, Grid, PromptReading
from ffscope.live.write_edit import how_to_write
from ffscope.memory_name import Memory
from ffscope.models.hooks import hooked
from ffscope.models.inputs import Inputs
from ffscope.models.lenses.base import Lens, State
from ffscope.models.memory_model import MemoryModel, StopPass, Trace
from ffscope.models.parts import Part
from ffscope.models.ranking import probabilities_of, rank_of, ranked, top
from ffscope.search.passes import by_length, sentence_inputs
from ffscope.tokens import spelling

_READINGS = ("residual", "output", "none")
_LIKELY = 20  # most likely tokens listed per run
_TOP = 10  # tokens per cell of the grid
_TOKENS = 2**12  # per batch
_PASS = 64  # tokens of padding that take as long as one more pass: about 30 on one core, more on several or on a GPU


# --- the text of a prompt ---


class Prompt(NamedTuple):
    """A text as model inputs, prepared as in a study: after BOS, and in an encoder–decoder after the decoder's start token."""

    text: str
    sentence: list[int]  # without BOS or start token
    inputs: Inputs

    @property
    def ids(self) -> list[int]:
        """The input of the predicting layers, one id per position."""
        ids = self.inputs["decoder_input_ids" if "decoder_input_ids" in self.inputs else "input_ids"]
        return ids[0].tolist()


def encode_prompt(model: MemoryModel, text: str, *, bos: int | None, limit: int) -> Prompt:
    """A text as a prompt; raises if it is empty, not text, or longer than `limit` tokens."""
    ids = model.encode(text, bos=bos is not None)["input_ids"][0].tolist()
    if len(ids) > limit:
        raise InputError(f"The text has {len(ids)} tokens, BOS included; expected at most {limit}. Shorten it.")
    sentence = ids if bos is None else ids[1:]
    return Prompt(text, sentence, sentence_inputs(model, np.array([sentence]), bos))


def check_count(noun: str, number: int, *, limit: int) -> int:
    """The same number; raises unless it is from 1 to `limit`."""
    if not 1 <= number <= limit:
        raise InputError(f"Expected 1 to {limit} {noun}, found {number}.")
    return number


@contextmanager
def stoppable(model: MemoryModel, stop: Stop) -> Iterator[None]:
    """Within a `with` block, check `stop` before every layer runs, and so also before every new token; in this thread only."""

    def observe(*_arguments: object) -> None:
        raise_if_stopped(stop)

    with ExitStack() as stack:
        for layer in range(model.layers):
            stack.enter_context(hooked(model.layer(layer).block, "in", observe))
        yield


def finite(numbers: Tensor, where: str) -> Tensor:
    """The same numbers; raises if any is not finite."""
    if not numbers.isfinite().all():
        raise CoefficientError(
            f"Expected finite numbers in {where}, found infinity or NaN, so nothing can be ranked there. Intervene with smaller "
            "numbers, or load the model in float32 or, for its wider range than float16's, in bfloat16."
        )
    return numbers


# --- a prompt ---


def read_prompt(
    model: MemoryModel,
    prompt: Prompt,
    *,
    interventions: Interventions,
    position: int,
    lens: Lens,
    of: str,
    memories: int,
    stop: Stop,
) -> PromptReading:
    """One run with the interventions, and if there are any, one without."""
    if of not in _READINGS:
        raise InputError(f"A grid of {of[:60]!r} is not available. Choose one of: {', '.join(_READINGS)}.")
    position = position_from_start(position, len(prompt.ids))
    with stoppable(model, stop):
        before = model.trace(prompt.inputs, layers=changed_layers(interventions)) if interventions.any else None
        with apply(model, interventions):
            trace = model.trace(prompt.inputs, layers=list(model.predicting_layers))
    logits = _logits(trace)
    grid = None if of == "none" else _grid(lens, trace, of, logits, stop)
    raise_if_stopped(stop)
    reading = PromptReading(
        text=prompt.text,
        ids=prompt.ids,
        tokens=[spelling(model.tokenizer, token) for token in prompt.ids],
        position=position,
        lens=lens.name,
        of=of,
        grid=grid,
        spellings={},
        steps=list(_until_stopped(steps(model, trace, position=position, memories=memories, lens=lens), stop)),
        distribution=_distribution(model, *_before_and_after(before, logits, position)),
        # Counted from the end, where the text is in both stacks of an encoder–decoder.
        interventions=[]
        if before is None
        else describe_applied(interventions, before, position=position - len(prompt.ids)),
        positions=positions_from_start(interventions, length=len(prompt.ids)) if interventions.any else None,
        write=how_to_write(model, interventions),
    )
    reading.spellings.update((str(token), spelling(model.tokenizer, token)) for token in sorted(_token_ids(reading)))
    return reading


def _grid(lens: Lens, trace: Trace, of: str, logits: Tensor, stop: Stop) -> Grid:
    """The grid of a trace, the most expensive part; it does not depend on the position."""
    states = trace.residual if of == "residual" else trace.output
    by_layer = {layer: state[0] for layer, state in zip(trace.layers, states, strict=True)}
    return read_grid(
        lens, by_layer, of="residual" if of == "residual" else "output", predictions=top(logits), stop=stop
    )


def _logits(trace: Trace) -> Float[Tensor, "pos vocab"]:
    assert trace.logits is not None  # a model with a lens has logits
    for layer, coefficients, output in zip(trace.layers, trace.coefficients, trace.output, strict=True):
        finite(coefficients, f"layer {layer}")
        finite(output, f"layer {layer}")
    return trace.logits[0]


def _until_stopped(steps: Iterator[Step], stop: Stop) -> Iterator[Step]:
    for step in steps:
        raise_if_stopped(stop)
        yield step


def _before_and_after(before: Trace | None, logits: Tensor, position: int) -> tuple[Tensor, Tensor | None]:
    """The logits at the position without and with the interventions; the latter are None if there are no interventions."""
    if before is None:
        return logits[position], None
    return _logits(before)[position], logits[position]


@torch.no_grad()
def _distribution(
    model: MemoryModel, before: Float[Tensor, "vocab"], after: Float[Tensor, "vocab"] | None
) -> list[Choice]:
    """The most likely tokens of both runs, in the order of the last run."""
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


def _token_ids(reading: PromptReading) -> set[int]:
    """Every token id that occurs in the reading."""
    rows = reading.grid.top if reading.grid else []
    cells = (token for row in rows for cell in row for token in cell)
    predicted = (prediction.id for step in reading.steps for prediction in (step.before, step.ff, step.after))
    return {*reading.ids, *cells, *predicted, *(choice.id for choice in reading.distribution)}


def read_grid(
    lens: Lens,
    states: dict[int, Float[Tensor, "pos hidden"]],
    *,
    of: State,
    predictions: Int[Tensor, "pos"],
    stop: Stop,
) -> Grid:
    """What the lens reads from the states of each layer, one state per position."""
    grid = Grid(list(states), [], [], [], [])
    for layer, layer_states in states.items():
        tokens, probabilities, ranks, entropies = _row(lens, layer_states, (layer, of), predictions, stop)
        grid.top.append(tokens.tolist())
        grid.probability.append(finite(probabilities, f"the prediction of layer {layer}").tolist())
        grid.rank.append(ranks.tolist())
        grid.entropy.append(finite(entropies, f"the prediction of layer {layer}").tolist())
    return grid


@torch.no_grad()
def _row(
    lens: Lens,
    states: Float[Tensor, "pos hidden"],
    which: tuple[int, State],
    predictions: Int[Tensor, "pos"],
    stop: Stop,
) -> tuple[Tensor, ...]:
    """The cells of one layer, computed in chunks: together their logits would not fit in memory."""
    cells = []
    for chunk, predicted in zip(states.split(lens.chunk), predictions.split(lens.chunk), strict=True):
        raise_if_stopped(stop)
        logits = lens.states(chunk, *which)
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        tokens = ranked(logits, _TOP)
        # `entr` is 0 for a probability of 0, though its logarithm is infinite.
        entropies = torch.special.entr(exact.exp()).sum(-1) / math.log(2)
        cells.append((tokens, exact.gather(1, tokens).exp(), rank_of(predicted, logits), entropies))
    return tuple(map(torch.cat, zip(*cells, strict=True)))


# --- one memory in sentences ---


def coefficients_in(
    model: MemoryModel, memory: Memory, *, sentences: Sequence[Sequence[int]], bos: int | None, stop: Stop
) -> list[list[float]]:
    """The coefficient at every token of each sentence, without BOS and start token."""
    coefficients: list[list[float]] = [[] for _ in sentences]
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    numbers = np.flatnonzero(lengths)
    # In a causal model nothing after a sentence changes its coefficients, so padding needs no mask.
    batches = padded_batches if model.causal else one_length_batches
    with stoppable(model, stop):
        for batch in batches(lengths[numbers]):
            rows = numbers[batch].tolist()
            of_batch = _batch_coefficients(model, memory, [sentences[row] for row in rows], bos)
            for row, of_sentence in zip(rows, of_batch, strict=True):
                coefficients[row] = of_sentence
    return coefficients


def one_length_batches(lengths: Array) -> list[Array]:
    """The indices of sentences, in batches of sentences of the same length."""
    return by_length(lengths, tokens=_TOKENS, rows=_TOKENS)


def padded_batches(lengths: Array) -> list[Array]:
    """The indices of sentences, shortest first, in the batches that minimise the total cost of passes and padding."""
    order = np.argsort(lengths, kind="stable")
    best = [(0, 0)]  # for the first n sentences: the lowest cost, in tokens, and where the last batch starts
    for end, length in enumerate(lengths[order].tolist(), 1):
        starts = range(max(0, end - max(1, _TOKENS // length)), end)
        best.append(min((best[start][0] + _PASS + (end - start) * length, start) for start in starts))
    batches, end = [], len(order)
    while end:
        start = best[end][1]
        batches.append(order[start:end])
        end = start
    return batches[::-1]


def _batch_coefficients(
    model: MemoryModel, memory: Memory, sentences: Sequence[Sequence[int]], bos: int | None
) -> list[list[float]]:
    """The coefficients from one pass over sentences padded on the right; the pass ends once the memory's layer is reached."""
    parts = model.layer(memory.layer).parts
    own_part = next(part for part in parts if memory.memory < part.offset + part.memories)
    longest = max(map(len, sentences))
    tokens = np.array([[*sentence, *[sentence[-1]] * (longest - len(sentence))] for sentence in sentences])
    by_sentence: list[list[float]] = []

    def observe(part: Part, coefficients: Tensor, _past: int) -> None:
        # Counted from the end, where the sentence is in both stacks of an encoder–decoder.
        rows = coefficients[:, -longest:, memory.memory - part.offset].float()
        for row, sentence in zip(rows, sentences, strict=True):
            by_sentence.append(finite(row[: len(sentence)], f"layer {memory.layer}").tolist())
        raise StopPass

    with suppress(StopPass), own_part.tap(observe):
        model.forward(sentence_inputs(model, tokens, bos))
    return by_sentence
