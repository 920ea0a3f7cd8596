"""Runs of one text with factors on coefficients: whether they make a token the prediction, and which memories would help."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from math import inf, isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from ffscope.axes import Float
from ffscope.effects.ablation import last_outputs
from ffscope.effects.readout import head_of
from ffscope.errors import CoefficientError, InputError
from ffscope.memory_name import Memory
from ffscope.models.edits import scale_in_rows
from ffscope.models.gradient_pass import GradientPass
from ffscope.models.memory_model import MemoryModel
from ffscope.models.parts import Part
from ffscope.models.ranking import probabilities_of, rank_of, top

Factors = Mapping[Memory, float]
_TOKENS = 2**12  # in one pass


class Outcome(NamedTuple):
    """A run: the token's logit minus the highest of the others, its rank and probability, and the predicted token with its own."""

    margin: float
    rank: int
    probability: float
    prediction: int
    prediction_probability: float

    @property
    def works(self) -> bool:
        """Whether the token is the prediction."""
        return self.rank == 1


class Trials:
    """Runs of one text, each with other factors; what matters is one token at one position."""

    def __init__(self, model: MemoryModel, text: str, *, token: int, position: int, bos: bool) -> None:
        self.model, self.token = model, token
        self.inputs = model.encode(text, bos=bos)
        length = self.inputs["decoder_input_ids" if "decoder_input_ids" in self.inputs else "input_ids"].shape[1]
        if not -length <= position < length:
            raise InputError(
                f"There is no position {position}: the text has {length} tokens, BOS included, counted from 0."
            )
        self.position = position % length - length  # from the end
        self._at_once = max(1, _TOKENS // length)
        self.texts = 0  # how many were run

    def run(self, factors: Factors) -> Outcome:
        """The model's own prediction in a run of its own."""
        self.texts += 1
        with self.model.edit(scale=dict(factors)):
            trace = self.model.trace(self.inputs, layers=[self.model.layers - 1])
        assert trace.logits is not None
        outcome = self._outcomes(trace.logits[:, self.position])[0]
        if not isfinite(outcome.margin):
            raise CoefficientError(
                "Expected finite logits with these factors, found infinity or NaN. Choose a smaller --max-factor, or load the "
                "model in float32."
            )
        return outcome

    def coefficients(self, memories: Iterable[Memory]) -> dict[str, float]:
        """The coefficients of some memories at the position, by name, without factors."""
        memories = list(memories)
        layers = sorted({memory.layer for memory in memories})
        trace = self.model.trace(self.inputs, layers=layers)
        by_layer = dict(zip(layers, trace.coefficients, strict=True))
        return {
            str(memory): by_layer[memory.layer][0, self.position, memory.memory].item()
            for memory in memories
            if -self.position <= by_layer[memory.layer].shape[1]
        }

    def run_all(self, trials: Sequence[Factors]) -> list[Outcome]:
        """The same of many trials, in a few passes: one text each."""
        outcomes: list[Outcome] = []
        for start in range(0, len(trials), self._at_once):
            outcomes += self._run_batch(trials[start : start + self._at_once])
        return outcomes

    @torch.no_grad()
    def _run_batch(self, trials: Sequence[Factors]) -> list[Outcome]:
        model, count = self.model, len(trials)
        self.texts += count
        inputs = {
            name: value.expand(count, *value.shape[1:]) if isinstance(value, Tensor) else value
            for name, value in self.inputs.items()
        }
        by_layer: dict[int, list[tuple[int, int, float]]] = {}
        for row, factors in enumerate(trials):
            for memory, factor in factors.items():
                by_layer.setdefault(memory.layer, []).append((row, memory.memory, factor))
        with ExitStack() as stack:
            for layer, changes in by_layer.items():
                rows, memories, numbers = (torch.tensor(column) for column in zip(*changes, strict=True))
                for part in model.layer(layer).parts:
                    stack.enter_context(part.tap(scale_in_rows(rows, memories, numbers)))
            here = torch.arange(count, device=model.device)
            states = last_outputs(model, inputs, here, torch.full_like(here, self.position))
        lens = head_of(model)
        return [outcome for some in states.split(lens.chunk) for outcome in self._outcomes(lens.logits(some))]

    def _outcomes(self, logits: Float[Tensor, "n vocab"]) -> list[Outcome]:
        token = torch.full((len(logits),), self.token, device=logits.device)
        prediction = top(logits)
        probabilities = probabilities_of(torch.stack([token, prediction], 1), logits)
        columns = (self._margins(logits), rank_of(token, logits), probabilities[:, 0], prediction, probabilities[:, 1])
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [
            Outcome(*row) if isfinite(row[0]) else Outcome(-inf, logits.shape[-1], 0.0, int(row[3]), 0.0)
            for row in rows
        ]

    def _margins(self, logits: Float[Tensor, "n vocab"]) -> Float[Tensor, "n"]:
        others = logits.clone()
        others[:, self.token] = -torch.inf
        return (logits[:, self.token] - others.amax(-1)).to(torch.promote_types(logits.dtype, torch.float32))

    def slopes(self, factors: Factors) -> list[Float[Tensor, "_memory"]]:
        """By layer, for every memory: the change of the margin per unit of its factor, to first order, in a run with factors.

        The sum over positions of m · ∂margin / ∂m. It takes a forward and a backward pass.
        """
        model = self.model
        exact = torch.promote_types(model.dtype, torch.float32)
        slopes = [torch.zeros(count, dtype=exact, device=model.device) for count in model.memories]

        def observe(layer: int, part: Part, coefficients: Tensor, gradient: Tensor) -> None:
            products = coefficients.to(exact) * gradient.to(exact)
            slopes[layer][part.offset : part.offset + part.memories] = products.sum((0, 1)).to(model.device)

        row, place = (torch.tensor([number], device=model.device) for number in (0, self.position))
        passes = GradientPass(model, observe)
        self.texts += 2
        with model.edit(scale=dict(factors)):
            output = passes.forward(self.inputs, row, place)
        passes.backward(output, self._gradient(output.detach()), again=False)
        return slopes

    def _gradient(self, states: Float[Tensor, "1 hidden"]) -> Float[Tensor, "1 hidden"]:
        lens = head_of(self.model)
        with torch.enable_grad():
            states = states.requires_grad_()
            margin = self._margins(lens.head_logits(lens.head_input(states)))
            return torch.autograd.grad(margin.sum(), states)[0]
