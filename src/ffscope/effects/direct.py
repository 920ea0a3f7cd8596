"""The direct part of an effect: through the residual to the unembedding, past all later layers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor

from ffscope.axes import Float
from ffscope.effects.readout import Gradients, head_of, score_gradients
from ffscope.effects.texts import Places
from ffscope.models.frozen_norm import frozen_directions, post_scales, refuse_norms_between_blocks, value_directions
from ffscope.models.hooks import tap
from ffscope.models.memory_model import MemoryModel
from ffscope.models.parts import Part

Direct = Literal["direct", "scale", "logit"]
"""What a memory changes directly when it is taken away: the loss, with the scale of the final norm held; the loss, through that
scale alone; and minus the target's logit, with the scale held."""
DIRECT: tuple[Direct, ...] = get_args(Direct)


class DirectPath:
    """The direct path from the memories to the unembedding in one pass at some places."""

    def __init__(self, model: MemoryModel, places: Places) -> None:
        self._model, self._places = model, places
        self._updates: dict[int, Tensor] = {}
        self._into_post: dict[int, Tensor] = {}
        self._ones = torch.ones(len(places.rows), dtype=torch.float64, device=model.device)
        self._directions: Tensor | None = None  # as in DIRECT, × n × hidden

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what the norms after the layers scale, in the pass made within the block."""
        with ExitStack() as stack:
            for layer in self._model.predicting_layers:
                ff = self._model.layer(layer)
                if ff.post is None:
                    continue
                update = ff.module(ff.update_site)
                stack.enter_context(tap(update, ff.update_site.side, self._keeper(self._updates, layer)))
                stack.enter_context(tap(ff.post, "in", self._keeper(self._into_post, layer)))
            yield

    def _keeper(self, rows: dict[int, Tensor], layer: int) -> Callable[[Tensor], None]:
        def keep(tensor: Tensor) -> None:
            shaped = tensor.detach().reshape(len(self._places.rows), -1, tensor.shape[-1])
            at = (index.to(tensor.device) for index in (self._places.rows, self._places.positions))
            rows[layer] = shaped[tuple(at)].to(self._model.device)

        return keep

    def read(self, states: Float[Tensor, "n hidden"], gradients: Gradients) -> None:
        """Take the gradients at the last output. Raises LensError if there is no direct path in this model."""
        model = self._model
        refuse_norms_between_blocks(model, list(model.predicting_layers))
        inputs = head_of(model).head_input(states)
        of_scores = score_gradients(model, inputs, self._places.targets)
        held, logit = (frozen_directions(model, states, heads) for heads in (gradients.head, of_scores))
        self._directions = torch.stack([held, gradients.loss.double() - held, -logit])

    @torch.no_grad()
    def products(self, layer: int, part: Part) -> Float[Tensor, "quantity n memory"] | None:
        """What one unit of each memory's coefficient changes, as in DIRECT; None if the layer does not lead to the logits."""
        if self._directions is None or layer not in self._model.predicting_layers:
            return None
        ff, scales = self._model.layer(layer), self.scales(layer)
        along = value_directions(ff, directions=self._directions.flatten(0, 1), scales=scales.repeat(len(DIRECT)))
        values = part.values()
        products = along.to(values) @ values.T  # in the model's precision, like its own products
        return products.float().unflatten(0, (len(DIRECT), -1))

    @torch.no_grad()
    def scales(self, layer: int) -> Float[Tensor, "n"]:
        """What the norm after a layer multiplies its values by, apart from its gain; 1 without such a norm."""
        ff = self._model.layer(layer)
        if layer not in self._updates:
            return self._ones
        update, into_post = self._updates[layer] * ff.scale, self._into_post[layer]
        return post_scales(self._model, ff, update=update, into_post=into_post).to(self._model.device)
