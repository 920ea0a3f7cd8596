"""What each lens reads from a layer's states, values and keys, beside what the model predicts in the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.models.lenses import ChosenLens
from ffscope.models.lenses.base import Lens
from ffscope.models.lenses.learned.base import AffineLens
from ffscope.models.memory_model import MemoryModel
from ffscope.models.ranking import rank_of, top
from ffscope.search.example_pass import Batch, states_of
from ffscope.translators.tuned import divergence

SUMS = ("divergence", "divergence_square", "same", "output_divergence")
State = dict[str, Tensor]


class Final(NamedTuple):
    """What the model predicts in the end."""

    probabilities: Float[Tensor, "n vocab"]
    tops: Int[Tensor, "n"]


@dataclass(frozen=True)
class StateReadings:
    """f(model, batches of examples) returns sums over the examples, lens × layer, and their number."""

    lenses: tuple[ChosenLens, ...]
    bos: int | None

    @torch.no_grad()
    def __call__(self, model: MemoryModel, batches: list[Batch]) -> State:
        """The sums of the divergences of residuals and outputs, and of the residuals with the model's prediction on top."""
        shape = len(self.lenses), len(model.predicting_layers)
        sums = {name: torch.zeros(shape, dtype=torch.float64) for name in SUMS}
        for batch in batches:
            states = states_of(model, batch, self.bos)
            for at in torch.arange(len(batch.examples)).split(model.lens().chunk):
                logits = model.lens().states(states.output[-1][at], model.layers - 1, "output")
                final = Final(logits.float().softmax(-1), top(logits))
                for column, layer in enumerate(model.predicting_layers):
                    residual, output = states.residual[layer][at], states.output[layer][at]
                    for row, chosen in enumerate(self.lenses):
                        for name, total in _readings(chosen.of(model), layer, residual, output, final).items():
                            sums[name][row, column] += total
        return {**sums, "count": torch.tensor(sum(len(batch.examples) for batch in batches))}


def _readings(
    lens: Lens,
    layer: int,
    residual: Float[Tensor, "n hidden"],
    output: Float[Tensor, "n hidden"],
    final: Final,
) -> dict[str, float]:
    logits = lens.states(residual, layer)
    of_residual = divergence(logits, final.probabilities).double()
    of_output = divergence(lens.states(output, layer, "output"), final.probabilities).double()
    sums = (of_residual, of_residual.square(), top(logits) == final.tops, of_output)
    return dict(zip(SUMS, (float(tensor.sum()) for tensor in sums), strict=True))


@dataclass(frozen=True)
class ValueReadings:
    """f(model, (layer, tokens after the top triggers)) returns for each lens which tokens are on top, and their ranks."""

    lenses: tuple[ChosenLens, ...]

    def __call__(self, model: MemoryModel, of_layer: tuple[int, Int[Tensor, "memory"]]) -> list[dict[str, Any]]:
        """The share of values whose top token follows the top trigger, the median rank of that token, and how many there are."""
        layer, next_tokens = of_layer
        return [_value_reading(chosen.of(model), layer, next_tokens) for chosen in self.lenses]


@torch.no_grad()
def _value_reading(lens: Lens, layer: int, next_tokens: Int[Tensor, "memory"]) -> dict[str, Any]:
    known = ((next_tokens >= 0) & (next_tokens < lens.unembedding.vocab)).nonzero()[:, 0]
    ranks, start = list[Tensor](), 0
    for logits in lens.value_chunks(layer, known):
        tokens = next_tokens[known[start : start + len(logits)]].to(logits.device)
        ranks.append(rank_of(tokens, logits).cpu())
        start += len(logits)
    if not ranks:
        return {"agreement": None, "next_rank": None, "memories": 0}
    every = torch.cat(ranks).double()
    return {
        "agreement": float((every == 1).double().mean()),
        "next_rank": float(every.quantile(0.5)),
        "memories": len(every),
    }


@torch.no_grad()
def distances(model: MemoryModel, lenses: Sequence[ChosenLens]) -> list[list[float | None]]:
    """How far the matrix for each layer's residual is from the identity, relative to it; None where a lens has no such matrix."""
    return [[_distance(chosen.of(model), layer) for layer in model.predicting_layers] for chosen in lenses]


def _distance(lens: Lens, layer: int) -> float | None:
    if not isinstance(lens, AffineLens):
        return None
    translator = lens.translator("residual", layer)
    if translator is None:
        return 0.0
    identity = torch.eye(len(translator.bias), device=translator.bias.device)
    return float((translator.weight - identity).norm() / identity.norm())
