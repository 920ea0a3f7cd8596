"""The memories of all layers at one position of a run, ranked by their push on a token, by their size or by their effect."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from ffscope.axes import Float
from ffscope.cancellation import Stop
from ffscope.errors import LensError
from ffscope.live.effect import memory_effects
from ffscope.live.interventions import Interventions, position_from_start
from ffscope.live.prompt import Prompt
from ffscope.live.responses import By, Ranked, RankedMemories
from ffscope.live.why import Contributions, PositionRun, Row, contributions, promoted_tokens, run_at, strongest_memories
from ffscope.models.frozen_norm import LinearLogit, logit_at, refuse_norms_between_blocks
from ffscope.models.lenses.base import Lens
from ffscope.models.memory_model import MemoryModel
from ffscope.models.ranking import top
from ffscope.models.token_lookup import find_token
from ffscope.tokens import Token, spelling


@torch.no_grad()
def rank_memories(
    model: MemoryModel,
    prompt: Prompt,
    *,
    interventions: Interventions,
    position: int,
    target: str | None,
    by: By | None,
    count: int,
    stop: Stop,
) -> RankedMemories:
    """The memories that push one token's logit most, have the largest effect on it, or add most to the residual."""
    lens = model.lens("norm")
    position = position_from_start(position, len(prompt.ids))
    kept = _kept_layers(model, prompt, position) if by == "effect" else None
    run = run_at(model, prompt, interventions=interventions, position=position, stop=stop, layers=kept)
    token = _token(model, lens, target, run.states.output[-1][0])
    logit, why_not = _logit(model, run, token.id)
    if by == "logit" and logit is None:
        raise LensError(why_not or "")
    by = by or ("size" if logit is None else "logit")
    layers = contributions(model, run, direction=None if logit is None else logit.direction, stop=stop)
    if by == "effect":
        effects = memory_effects(
            model, prompt, interventions=interventions, position=position, token=token.id, stop=stop
        )
        layers = _with_effects(layers, effects)
    rows, total = strongest_memories(layers, by=by, count=count)
    promoted = promoted_tokens(model, rows, stop=stop)
    return RankedMemories(
        text=prompt.text,
        ids=prompt.ids,
        tokens=[spelling(model.tokenizer, token) for token in prompt.ids],
        position=position,
        by=by,
        target=token,
        logit=None if logit is None else logit.total,
        memories=[_ranked(row, total, promoted[row.memory]) for row in rows],
        note=why_not if logit is None else _note(logit),
    )


def _kept_layers(model: MemoryModel, prompt: Prompt, position: int) -> list[int]:
    """The layers whose stack has a token at the position, counted from the end: an encoder without BOS may lack the first."""
    in_encoder = len(prompt.ids) - position <= prompt.inputs["input_ids"].shape[1]
    return list(range(model.layers)) if in_encoder else list(model.predicting_layers)


def _with_effects(layers: Iterable[Contributions], effects: list[Float[Tensor, "_memory"]]) -> Iterator[Contributions]:
    """The layers with their effects, and then the layers that have no such position."""
    rest = dict(enumerate(effects))
    for layer in layers:
        yield layer._replace(effects=rest.pop(layer.layer))
    for number, of_layer in rest.items():
        yield Contributions(number, None, torch.zeros_like(of_layer, dtype=torch.float64), None, of_layer)


def _token(model: MemoryModel, lens: Lens, target: str | None, output: Tensor) -> Token:
    """The target token, by default the one that the model predicts."""
    if target:
        return find_token(model, target, vocab=lens.unembedding.vocab)
    predicted = int(top(lens.states(output[None], model.layers - 1, "output"))[0])
    return Token(f"#{predicted}", predicted, spelling(model.tokenizer, predicted))


def _logit(model: MemoryModel, run: PositionRun, token: int) -> tuple[LinearLogit | None, str | None]:
    """The token's logit as a linear function of the residual; or the reason why it is not one in this model."""
    try:
        refuse_norms_between_blocks(model, list(model.predicting_layers))
        return logit_at(model, run.states.output[-1][0], a=token), None
    except LensError as error:
        return None, str(error)


def _ranked(row: Row, total: float, tokens: list[str]) -> Ranked:
    return Ranked(
        memory=str(row.memory),
        coefficient=row.coefficient,
        size=row.size,
        share_of_layer=row.share,
        share_of_all=row.size / total if total else 0.0,
        push=row.push,
        effect=row.effect,
        promotes=tokens,
    )


def _note(logit: LinearLogit) -> str | None:
    if logit.bands:
        return "This model has an adaptive softmax; the pushes are on the token's score before it is normalised."
    if logit.cap is None:
        return None
    return f"This model caps its logits at ±{logit.cap:g}; the pushes are on the logit before the cap."
