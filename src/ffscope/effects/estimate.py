"""Effects of all memories at once, to first order: what is taken away from each coefficient, times the gradient."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Literal

import torch
from torch import Tensor

from ffscope.axes import Float
from ffscope.effects.baseline import Baselines
from ffscope.effects.direct import DIRECT, DirectPath
from ffscope.effects.position_sums import position_sums
from ffscope.effects.readout import Gradients, read_gradients
from ffscope.effects.texts import Batch, Places
from ffscope.errors import LensError
from ffscope.models.gradient_pass import GradientPass
from ffscope.models.inputs import Inputs
from ffscope.models.linear_parts import norms_in_residual
from ffscope.models.memory_model import MemoryModel
from ffscope.models.parts import Part, Reader
from ffscope.models.resumed_pass import BlockOutputs

Quantity = Literal["effect", "prediction", "direct", "scale", "logit", "gradient", "contribution", "fires"]
"""Of a memory at an example. Without it: the change of the loss (effect) and of the predicted token's log-probability (prediction),
and the direct parts of the former with the final norm's scale held, and through that scale. With it: what it adds directly to the
target's logit, the sizes of the gradient and of coefficient × value, and whether it fires."""

Add = Callable[[Quantity, int, slice, Tensor], None]
"""Takes a quantity, a layer, a slice of its memories, and the numbers, example × memory."""


class Estimator:
    """Estimates effects at batches of examples, in one forward pass and one or two backward passes each.

    With `steps` > 1, effect and prediction are integrals of the gradient from the coefficients to the baseline, at the midpoints
    of so many steps, while all memories of a layer change together (Sundararajan et al. 2017; Marks et al. 2024).
    """

    def __init__(self, model: MemoryModel, baselines: Baselines, *, bos: int | None, steps: int = 1) -> None:
        self.model, self.baselines, self.bos, self.steps = model, baselines, bos, steps
        self._norms: dict[Part, Tensor] = {}

    def run(self, batch: Batch, add: Add) -> None:
        """Estimate at the examples of a batch."""
        model, places = self.model, batch.places(self.model)
        inputs = batch.inputs(model, self.bos)
        direct = DirectPath(model, places)
        outputs = BlockOutputs(model, len(places.rows))
        observer = _Observer(self, add, direct, places)
        run = GradientPass(model, observer, everywhere=not self.baselines.are_zero)
        with direct.recording(), outputs.recording() if self.steps > 1 else ExitStack():
            output = run.forward(inputs, places.rows, places.positions)
        gradients = read_gradients(model, output.detach(), places.targets)
        try:
            direct.read(output.detach(), gradients)
        except LensError:
            observer.direct = None  # there is none in this model
        if self.steps == 1:
            _differentiate(run, output, gradients, places, observer)
        else:
            run.backward(output, gradients.loss, again=False)
            for layer in range(model.layers):
                self._integrate(layer, inputs, places, outputs, gradients, add)

    def _integrate(
        self, layer: int, inputs: Inputs, places: Places, outputs: BlockOutputs, intact: Gradients, add: Add
    ) -> None:
        """Add the integrals of one layer; the layers below are not run again."""
        model, integrals = self.model, _Integrals(self)
        for step in range(self.steps):
            share = (step + 0.5) / self.steps
            integrals.weight = 1 / (self.steps * share)
            run = GradientPass(model, integrals, layers=[layer], everywhere=not self.baselines.are_zero)
            with outputs.resumed(layer, places.rows), self._interpolated(layer, share):
                output = run.forward(inputs, places.rows, places.positions)
            at_step = read_gradients(model, output.detach(), places.targets, intact.losses.prediction)
            _differentiate(run, output, at_step, places, integrals)
        for (quantity, start, stop), sums in integrals.sums.items():
            add(quantity, layer, slice(start, stop), sums)

    @contextmanager
    def _interpolated(self, layer: int, share: float) -> Iterator[None]:
        """Within the block, the layer's coefficients are this share of the way from the baseline to themselves."""
        with ExitStack() as stack:
            for part in self.model.layer(layer).parts:
                stack.enter_context(part.tap(self._interpolation(layer, share)))
            yield

    def _interpolation(self, layer: int, share: float) -> Reader:
        def change(part: Part, before: Tensor, _past: int) -> Tensor:
            return torch.lerp(self.baseline(layer, part).to(before), before, share)

        return change

    def baseline(self, layer: int, part: Part) -> Float[Tensor, "memory"]:
        """The baselines of a part's memories."""
        rows = self.baselines.of_layer(layer, self.model.layer(layer).memories, self.model.device)
        return rows[part.offset : part.offset + part.memories]

    def taken_away(
        self, layer: int, part: Part, coefficients: Float[Tensor, "*at memory"]
    ) -> Float[Tensor, "*at memory"]:
        """How the coefficients change when each memory is taken away."""
        if self.baselines.are_zero:
            return -coefficients
        return self.baseline(layer, part).to(coefficients) - coefficients

    def change(
        self,
        layer: int,
        part: Part,
        coefficients: Float[Tensor, "n pos memory"],
        gradient: Float[Tensor, "n pos memory"],
        *,
        sizes: bool = False,
    ) -> tuple[Float[Tensor, "n memory"], Float[Tensor, "n memory"] | None]:
        """To first order, what changes when each memory is taken away; with `sizes`, also Σ |gradient| over the positions."""
        if self.baselines.are_zero:
            change, summed = position_sums(coefficients, gradient, sizes=sizes)
            return change.neg(), summed
        return position_sums(self.taken_away(layer, part, coefficients), gradient, sizes=sizes)

    def norms(self, layer: int, part: Part) -> Float[Tensor, "memory"]:
        """The norms of a part's values."""
        if part not in self._norms:
            self._norms[part] = norms_in_residual(self.model.layer(layer), part.values())
        return self._norms[part]


def _differentiate(
    run: GradientPass, output: Tensor, gradients: Gradients, places: Places, observer: "_Observer | _Integrals"
) -> None:
    """Show an observer the gradients of the loss and of the prediction's log-probability.

    Where the model predicts the target, one is the negative of the other; if it does in every text, one pass gives both.
    """
    if torch.equal(gradients.losses.prediction.to(places.targets), places.targets):
        observer.signs = {"effect": 1, "prediction": -1}
        run.backward(output, gradients.loss, again=False)
        return
    observer.signs = {"effect": 1}
    run.backward(output, gradients.loss, again=True)
    observer.signs = {"prediction": 1}
    run.backward(output, gradients.prediction, again=False)


class _Observer:
    """Adds what follows from the gradients of one pass; `signs` says of which quantities they are, and with which sign."""

    def __init__(self, estimator: Estimator, add: Add, direct: DirectPath, places: Places) -> None:
        self._estimator, self._add, self._places = estimator, add, places
        self.direct: DirectPath | None = direct
        self.signs: dict[Quantity, int] = {"effect": 1}

    def __call__(self, layer: int, part: Part, coefficients: Tensor, gradient: Tensor) -> None:
        memories, estimator = slice(part.offset, part.offset + part.memories), self._estimator
        change, sizes = estimator.change(layer, part, coefficients, gradient, sizes="effect" in self.signs)
        if estimator.steps == 1:
            for quantity, sign in self.signs.items():
                self._add(quantity, layer, memories, sign * change)
        if sizes is not None:
            self._add("gradient", layer, memories, sizes)
            at = (index.to(coefficients.device) for index in (self._places.rows, self._places.positions))
            here = coefficients[tuple(at)].float()
            self._add_here(layer, part, memories, here)

    def _add_here(self, layer: int, part: Part, memories: slice, coefficients: Float[Tensor, "n memory"]) -> None:
        """Add what depends on the coefficients at the examples' own positions alone."""
        estimator = self._estimator
        self._add("fires", layer, memories, (coefficients > 0).float())
        sizes = coefficients.abs() * estimator.norms(layer, part)
        products = None
        if self.direct is not None:
            with suppress(LensError):  # a norm after the layer that does more than scale
                sizes = sizes * self.direct.scales(layer).abs().to(coefficients)[:, None]
                products = self.direct.products(layer, part)
        self._add("contribution", layer, memories, sizes)
        if products is not None:
            change = estimator.taken_away(layer, part, coefficients)
            for quantity, numbers in zip(DIRECT, change * products.to(change), strict=True):
                self._add(quantity, layer, memories, numbers)


class _Integrals:
    """Sums the effects over the steps of the integrals of one layer."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self.weight = 1.0
        self.signs: dict[Quantity, int] = {"effect": 1}
        self.sums: dict[tuple[Quantity, int, int], Tensor] = {}  # by quantity and range of memories

    def __call__(self, layer: int, part: Part, coefficients: Tensor, gradient: Tensor) -> None:
        change, _ = self._estimator.change(layer, part, coefficients, gradient)
        change = change * self.weight
        for quantity, sign in self.signs.items():
            at = quantity, part.offset, part.offset + part.memories
            self.sums[at] = sign * change + self.sums.get(at, 0)
