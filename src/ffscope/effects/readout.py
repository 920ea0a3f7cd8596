"""The loss at examples, read from the model's last output as the model itself reads it, and its gradients there."""

from typing import NamedTuple

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.errors import LensError
from ffscope.models.lenses.norm import NormLens
from ffscope.models.memory_model import MemoryModel
from ffscope.models.ranking import top


class Losses(NamedTuple):
    """At each example: the cross-entropy of the target in nats, the predicted token and its log-probability."""

    loss: Float[Tensor, "n"]
    prediction: Int[Tensor, "n"]
    log_prob: Float[Tensor, "n"]


class Gradients(NamedTuple):
    """The gradients of the loss and of the prediction's log-probability with respect to the last output.

    `head` is the gradient of the loss with respect to what enters the unembedding, after the final norm.
    """

    losses: Losses
    loss: Float[Tensor, "n hidden"]
    prediction: Float[Tensor, "n hidden"]
    head: Float[Tensor, "n width"]


def head_of(model: MemoryModel) -> NormLens:
    """The lens that reads the last output as the model does; raises if the model has no unembedding."""
    if model.top is None:
        raise LensError("The model has no unembedding, so it has no loss, and memories no effect on it.")
    lens = model.lens("norm")
    assert isinstance(lens, NormLens)
    return lens


@torch.no_grad()
def read_losses(
    model: MemoryModel,
    states: Float[Tensor, "n hidden"],
    targets: Int[Tensor, "n"],
    predictions: Int[Tensor, "n"] | None = None,
) -> Losses:
    """The losses at some last outputs, and the log-probabilities of given tokens, by default of the predicted ones."""
    lens, chunks = head_of(model), []
    for at in torch.arange(len(states)).split(lens.chunk):
        log_probs = _log_probs(lens.logits(states[at]))
        prediction = top(log_probs) if predictions is None else predictions[at].to(log_probs.device)
        target = targets[at].to(log_probs.device)
        chunks.append(Losses(-_pick(log_probs, target), prediction, _pick(log_probs, prediction)))
    return Losses(*map(torch.cat, zip(*chunks, strict=True)))


def read_gradients(
    model: MemoryModel,
    states: Float[Tensor, "n hidden"],
    targets: Int[Tensor, "n"],
    predictions: Int[Tensor, "n"] | None = None,
) -> Gradients:
    """The losses at some last outputs with their gradients, a few outputs at a time: a vocabulary may be large."""
    lens = head_of(model)
    chunks = [
        _gradients(lens, states[at], targets[at], None if predictions is None else predictions[at])
        for at in torch.arange(len(states)).split(lens.chunk)
    ]
    losses, *gradients = zip(*chunks, strict=True)
    return Gradients(Losses(*map(torch.cat, zip(*losses, strict=True))), *map(torch.cat, gradients))


def _gradients(
    lens: NormLens, states: Float[Tensor, "n hidden"], targets: Int[Tensor, "n"], predictions: Int[Tensor, "n"] | None
) -> Gradients:
    with torch.enable_grad():
        states = states.detach().requires_grad_()
        inputs = lens.head_input(states)
        log_probs = _log_probs(lens.head_logits(inputs))
        targets = targets.to(log_probs.device)
        prediction = top(log_probs.detach()) if predictions is None else predictions.to(log_probs.device)
        loss, log_prob = -_pick(log_probs, targets), _pick(log_probs, prediction)
        of_loss, of_head = torch.autograd.grad(loss.sum(), (states, inputs), retain_graph=True)
        (of_prediction,) = torch.autograd.grad(log_prob.sum(), states)
    return Gradients(Losses(loss.detach(), prediction, log_prob.detach()), of_loss, of_prediction, of_head)


def score_gradients(
    model: MemoryModel, inputs: Float[Tensor, "n width"], targets: Int[Tensor, "n"]
) -> Float[Tensor, "n width"]:
    """The gradients of the targets' logits with respect to what enters the unembedding, before a cap or a normaliser."""
    lens, chunks = head_of(model), list[Tensor]()
    for at in torch.arange(len(inputs)).split(lens.chunk):
        with torch.enable_grad():
            entering = inputs[at].detach().float().requires_grad_()
            scores = lens.unembedding.direction_scores(entering) * lens.scale
            picked = scores.gather(1, targets[at].to(scores.device)[:, None])
            chunks += torch.autograd.grad(picked.sum(), entering)
    return torch.cat(chunks)


def _log_probs(logits: Float[Tensor, "n vocab"]) -> Float[Tensor, "n vocab"]:
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


def _pick(log_probs: Float[Tensor, "n vocab"], tokens: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
    return log_probs.gather(1, tokens[:, None])[:, 0]
