"""Trains the translators of the tuned lens (Belrose et al. 2023), all of them on the same states.

What is trained is a change of the identity. It multiplies a state whose directions of large variance are scaled down, by the fourth
root of their variance: otherwise a few of them would determine the size of all steps.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ffscope.axes import Array, Float
from ffscope.models.gradient_pass import frozen_weights
from ffscope.models.lenses.learned.base import Key, Translator
from ffscope.models.lenses.norm import NormLens
from ffscope.models.memory_model import MemoryModel
from ffscope.translators.states import Rows, read_rows, translated_states
from ffscope.translators.texts import TrainingText

_RATE = 0.01  # of Adam, relative to the size of the last output
_BETAS = (0.9, 0.99)
_WARM_UP = 0.1  # share of the steps over which the rate rises to its maximum, before it falls to 0
_RIDGE = 1e-3  # added to variances, relative to their mean
_BETTER = 1e-3  # relative improvement below which a validation counts as none
_PASS = {"cpu": 2048, "cuda": 32768}  # tokens per pass of the model, by device


@dataclass(frozen=True)
class Schedule:
    """How long the translators are trained: `patience` is after how many validations without improvement it stops."""

    steps: int
    patience: int
    every: int  # steps between validations


class _Change(nn.Module):
    """A change of a state, affine in it; zero at the start."""

    def __init__(self, states: Float[Tensor, "n hidden"]) -> None:
        super().__init__()
        hidden = states.shape[1]
        self.mean, self.scaling = states.mean(0), _scaling(states)
        self.weight = nn.Parameter(states.new_zeros(hidden, hidden))
        self.bias = nn.Parameter(states.new_zeros(hidden))

    def forward(self, states: Float[Tensor, "n hidden"]) -> Float[Tensor, "n hidden"]:
        """The translated states."""
        return states + nn.functional.linear((states - self.mean) @ self.scaling, self.weight, self.bias)

    @torch.no_grad()
    def translator(self) -> Translator:
        """The same map, from the states themselves."""
        change = self.weight @ self.scaling
        return Translator(torch.eye(len(change), device=change.device) + change, self.bias - change @ self.mean)


def _scaling(states: Float[Tensor, "n hidden"]) -> Float[Tensor, "hidden hidden"]:
    centred = (states - states.mean(0)).double()
    variances, directions = torch.linalg.eigh(centred.T @ centred / len(states))
    mean = variances.mean().clamp_min(torch.finfo(torch.float32).tiny)
    relative = (variances / mean).clamp_min(0) + _RIDGE
    return (directions * (relative**-0.25 / mean.sqrt()) @ directions.T).float()


class Training:
    """The training of all translators, step by step. `state` and `load` save and restore it between steps."""

    def __init__(self, model: MemoryModel, text: TrainingText, schedule: Schedule, bos: int | None) -> None:
        lens = model.lens()
        assert isinstance(lens, NormLens)
        self.model, self.lens, self.text, self.schedule, self._bos = model, lens, text, schedule, bos
        self.keys = translated_states(model)
        self._validation = self._rows(text.validation)
        first = self._rows(_at_least(text.steps, 4 * model.hidden))
        self._changes = {key: _Change(first.states[key]) for key in self.keys}
        self._rate = _RATE * float(first.last.float().std())
        parameters = [parameter for change in self._changes.values() for parameter in change.parameters()]
        self._optimizer = torch.optim.Adam(parameters, lr=self._rate, betas=_BETAS)
        self.step, self._stale = 0, 0
        self.losses = self._validate(dict.fromkeys(self.keys))  # the best so far; at first those of the norm lens
        self.first_losses = dict(self.losses)
        self.best = {key: _identity(change.weight) for key, change in self._changes.items()}

    @property
    def done(self) -> bool:
        """Whether all steps are made, or no translator has improved for a while."""
        return self.step >= len(self.text.steps) or self._stale >= self.schedule.patience

    def run(self, after_step: Callable[[], None]) -> None:
        """Make the remaining steps."""
        with frozen_weights(self.model):
            while not self.done:
                self._make_step()
                self.step += 1
                if self.step % self.schedule.every == 0 or self.step == len(self.text.steps):
                    self._keep_best()
                after_step()

    def _make_step(self) -> None:
        steps = len(self.text.steps)
        warm = min(1.0, (self.step + 1) / max(1.0, _WARM_UP * steps))
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * warm * (1 - self.step / steps)
        self._optimizer.zero_grad()
        rows = self._rows(self.text.steps[self.step])
        for at in torch.arange(len(rows.last)).split(self.lens.chunk):
            target = self._probabilities(rows.last[at])
            for key, change in self._changes.items():
                (_cross_entropy(self.lens, change(rows.states[key][at]), target) / len(rows.last)).backward()
        self._optimizer.step()

    def _keep_best(self) -> None:
        """Keep the translators that are the best so far on the sentences held out of the training."""
        translators = {key: change.translator() for key, change in self._changes.items()}
        improved = False
        for key, loss in self._validate(translators).items():
            improved |= loss < self.losses[key] * (1 - _BETTER)
            if loss < self.losses[key]:
                self.losses[key], self.best[key] = loss, translators[key]
        self._stale = 0 if improved else self._stale + 1

    @torch.no_grad()
    def _validate(self, translators: Mapping[Key, Translator | None]) -> dict[Key, float]:
        rows, sums = self._validation, dict.fromkeys(self.keys, 0.0)
        for at in torch.arange(len(rows.last)).split(self.lens.chunk):
            target = self._probabilities(rows.last[at])
            for key, translator in translators.items():
                states = rows.states[key][at]
                if translator is not None:
                    states = nn.functional.linear(states, translator.weight, translator.bias)
                sums[key] += divergence(self.lens.logits(states), target).sum().item()
        return {key: total / len(rows.last) for key, total in sums.items()}

    def _rows(self, sentences: Sequence[Array]) -> Rows:
        return read_rows(self.model, sentences, self._bos, tokens=_PASS.get(self.model.device.type, 2048))

    @torch.no_grad()
    def _probabilities(self, states: Float[Tensor, "n hidden"]) -> Float[Tensor, "n vocab"]:
        return self.lens.logits(states).float().softmax(-1)

    def state(self) -> dict[str, Tensor]:
        """Everything that the remaining steps depend on."""
        tensors = {"step": torch.tensor(self.step), "stale": torch.tensor(self._stale)}
        for name, losses in (("losses", self.losses), ("first_losses", self.first_losses)):
            tensors[name] = torch.tensor([losses[key] for key in self.keys], dtype=torch.float64)
        for number, (key, change) in enumerate(self._changes.items()):
            for name, parameter in change.named_parameters():
                tensors[f"{number}.{name}"] = parameter.detach()
                for moment, tensor in self._optimizer.state[parameter].items():
                    tensors[f"{number}.{name}.{moment}"] = tensor
            for name, tensor in self.best[key]._asdict().items():
                tensors[f"{number}.best.{name}"] = tensor
        return {name: tensor.contiguous().clone() for name, tensor in tensors.items()}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Continue from a saved state."""
        self.step, self._stale = int(tensors["step"]), int(tensors["stale"])
        self.losses = dict(zip(self.keys, tensors["losses"].tolist(), strict=True))
        self.first_losses = dict(zip(self.keys, tensors["first_losses"].tolist(), strict=True))
        device = self.model.device
        for number, (key, change) in enumerate(self._changes.items()):
            for name, parameter in change.named_parameters():
                parameter.data.copy_(tensors[f"{number}.{name}"])
                prefix = f"{number}.{name}."
                moments = {entry.removeprefix(prefix): t for entry, t in tensors.items() if entry.startswith(prefix)}
                self._optimizer.state[parameter] = {
                    moment: tensor if moment == "step" else tensor.to(device) for moment, tensor in moments.items()
                }
            self.best[key] = Translator(*(tensors[f"{number}.best.{name}"].to(device) for name in Translator._fields))


def divergence(logits: Float[Tensor, "n vocab"], target: Float[Tensor, "n vocab"]) -> Float[Tensor, "n"]:
    """KL(model ‖ softmax of some logits) in nats, given the model's own probabilities."""
    return nn.functional.kl_div(logits.float().log_softmax(-1), target, reduction="none").sum(-1)


def _cross_entropy(lens: NormLens, states: Tensor, target: Tensor) -> Tensor:
    """The sum of the cross-entropies: it has the gradient of the divergence."""
    logits = lens.head_logits(lens.head_input(states)).float()
    return nn.functional.cross_entropy(logits, target, reduction="sum")


def _identity(like: Tensor) -> Translator:
    return Translator(torch.eye(len(like), device=like.device), like.new_zeros(len(like)).detach())


def _at_least(steps: Sequence[Sequence[Array]], tokens: int) -> list[Array]:
    """The sentences of the first steps, with at least so many tokens if there are."""
    sentences: list[Array] = []
    for step in steps:
        sentences += step
        if sum(map(len, sentences)) >= tokens:
            break
    return sentences


def validation_interval(steps: int) -> int:
    """Steps between validations: ten in the whole training."""
    return max(1, math.ceil(steps / 10))
