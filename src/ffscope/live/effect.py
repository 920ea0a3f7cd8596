"""Effects of memories on one prediction: how a token's log-probability would change without each, estimated to first order."""

import torch
from torch import Tensor

from ffscope.axes import Float
from ffscope.cancellation import Stop, raise_if_stopped
from ffscope.effects.readout import read_gradients
from ffscope.live.interventions import Interventions, apply
from ffscope.live.prompt import Prompt, finite, stoppable
from ffscope.models.gradient_pass import GradientPass
from ffscope.models.memory_model import MemoryModel
from ffscope.models.parts import Part


def memory_effects(
    model: MemoryModel, prompt: Prompt, *, interventions: Interventions, position: int, token: int, stop: Stop
) -> list[Float[Tensor, "_memory"]]:
    """By layer, for every memory: the change of the token's log-probability at a position, were the memory 0 at every position.

    To first order, in nats: the sum over positions of (0 − m) · ∂ log p / ∂m, with the interventions applied. It takes a forward
    and a backward pass.
    """
    exact = torch.promote_types(model.dtype, torch.float32)
    effects = [torch.zeros(count, dtype=exact, device=model.device) for count in model.memories]

    def observe(layer: int, part: Part, coefficients: Tensor, gradient: Tensor) -> None:
        raise_if_stopped(stop)
        products = -coefficients.to(exact) * gradient.to(exact)
        effects[layer][part.offset : part.offset + part.memories] = products.sum((0, 1)).to(model.device)

    row, place, target = (torch.tensor([number], device=model.device) for number in (0, position, token))
    gradients = GradientPass(model, observe)
    with stoppable(model, stop), apply(model, interventions):
        output = gradients.forward(prompt.inputs, row, place)
    of_log_prob = -read_gradients(model, output.detach(), target).loss
    gradients.backward(output, of_log_prob, again=False)
    return [finite(of_layer, f"the gradient of layer {layer}") for layer, of_layer in enumerate(effects)]
