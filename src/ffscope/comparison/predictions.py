"""The predictions of two models at the same places of held-out text."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ffscope.axes import Float
from ffscope.effects.held_out import HeldOutBatch
from ffscope.effects.readout import head_of
from ffscope.models.memory_model import MemoryModel
from ffscope.models.ranking import top
from ffscope.search.passes import sentence_inputs

State = dict[str, Tensor]


@dataclass(frozen=True)
class ComparePredictions:
    """f(model after, batches) returns sums over their places: of both losses, of changed predictions, and of KL(before ‖ after)."""

    before: MemoryModel
    bos: int | None

    def __call__(self, model: MemoryModel, batches: list[HeldOutBatch]) -> State:
        """The sums, in float64."""
        state = {name: torch.zeros((), dtype=torch.float64) for name in ("before", "after", "changed", "divergence")}
        for batch in batches:
            outputs = [_last_outputs(each, batch, self.bos) for each in (self.before, model)]
            targets = torch.from_numpy(batch.targets)
            step = min(head_of(each).chunk for each in (self.before, model))
            for start in range(0, len(targets), step):
                at = slice(start, start + step)
                old, new = (
                    _log_probs(each, output[at]) for each, output in zip((self.before, model), outputs, strict=True)
                )
                old = old.to(new.device)
                for name, log_probs in (("before", old), ("after", new)):
                    state[name] -= log_probs.gather(1, targets[at, None].to(new.device)).double().sum().cpu()
                state["changed"] += (top(old) != top(new)).sum().cpu()
                # Where a probability is 0, so is its term, although its logarithm is infinite.
                terms = torch.where(old.isinf(), 0.0, old.exp() * (old - new))
                state["divergence"] += terms.sum(-1).double().sum().cpu()
        return state | {"count": torch.tensor(sum(len(batch.targets) for batch in batches))}


def _last_outputs(model: MemoryModel, batch: HeldOutBatch, bos: int | None) -> Float[Tensor, "n hidden"]:
    rows, positions = (torch.from_numpy(array).to(model.device) for array in (batch.rows, batch.positions))
    inputs = sentence_inputs(model, batch.tokens, bos)
    return model.states_at(inputs, rows, positions, layers=[model.layers - 1]).output[0]


@torch.no_grad()
def _log_probs(model: MemoryModel, states: Float[Tensor, "n hidden"]) -> Float[Tensor, "n vocab"]:
    logits = head_of(model).logits(states)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
