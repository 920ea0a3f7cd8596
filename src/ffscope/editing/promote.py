"""Searches for few memories whose coefficients, multiplied by factors, make a token the prediction after a text."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ffscope.editing.record import Edited, EditedMemory, Promoted, SideEffects
from ffscope.editing.side_effects import PREFIXES, read_held_out, side_effects
from ffscope.editing.trials import Outcome, Trials
from ffscope.editing.written import edit
from ffscope.errors import LensError
from ffscope.memory_name import Memory
from ffscope.models.info import describe
from ffscope.models.memory_model import MemoryModel
from ffscope.models.token_lookup import find_token
from ffscope.models.written import refuse_existing
from ffscope.options.edit import PromoteOptions
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.study.folder import Study
from ffscope.tokens import Token, spelling

_HALVINGS = 7  # of the common strength of all factors


@dataclass(frozen=True)
class Prediction:
    """In one run: the rank and probability of the token, and the predicted token with its probability."""

    rank: int
    probability: float
    predicted: str
    predicted_probability: float


@dataclass(frozen=True)
class Promotion:
    """The factors that make a token the prediction after a text; or if none were found, the closest that was reached, and why."""

    model: str
    text: str
    token: Token
    position: int
    works: bool  # whether the token is the prediction with the factors
    memories: tuple[EditedMemory, ...]
    coefficients: dict[str, float]  # of these memories at the position, without the edit
    before: Prediction
    after: Prediction
    why: str | None  # it was not found
    texts: int  # how many were run to find it
    side_effects: SideEffects | None = None
    edited: Edited | None = None  # as it was written

    @property
    def factors(self) -> dict[str, float]:
        """The factors by memory: the `scale` of `MemoryModel.edit` and of `ffscope.edit`."""
        return {row.memory: row.factor for row in self.memories}


def promote(
    model: MemoryModel,
    text: str,
    token: str,
    *,
    position: int = -1,
    bos: bool = True,
    out: Path | str | None = None,
    study: Study | Path | str | None = None,
    prefixes: int = PREFIXES,
    full_precision: bool = False,
    progress: ProgressCallback = no_progress,
    **options: Any,
) -> Promotion:
    """Find a small set of memories whose coefficients, multiplied by factors, make a token the prediction after a text.

    The set is irreducible: without any one of its memories, at these factors, the token is not the prediction. It need not be the
    smallest. `token` is a text, a spelling or an id, `"#123"`. With a study of the model, side effects are measured on its held-out
    text; with `out`, the edit is written there if one was found. `options` are those of `PromoteOptions`: max_memories,
    max_factor, candidates.
    """
    search_options = PromoteOptions(**options)
    if out is not None:
        refuse_existing(Path(out))
    target = _target(model, token)
    held_out = None if study is None else read_held_out(study, model, prefixes)
    trials = Trials(model, text, token=target.id, position=position, bos=bos)
    promotion = _Search(trials, target, search_options, progress).promotion(text)
    if not promotion.works or not promotion.memories:
        return promotion
    scale = promotion.factors
    if out is not None:
        wanted = Promoted(text, target.token, target.id, trials.position, bos)
        how: dict[str, Any] = {"full_precision": full_precision, "study": study, "prefixes": prefixes}
        edited = edit(model, out, scale=scale, promoted=wanted, progress=progress, **how)
        return replace(promotion, edited=edited, side_effects=edited.side_effects)
    if held_out is not None:
        effects = side_effects(
            held_out, model, model, lambda: model.edit(scale=scale), token=target.id, progress=progress
        )
        return replace(promotion, side_effects=effects)
    return promotion


def _target(model: MemoryModel, token: str) -> Token:
    """The token that a text stands for; raises if the model predicts none."""
    info = describe(model)
    if info.no_lens is not None:
        raise LensError(f"{info.no_lens} Without logits no token is predicted. Expected a model with an unembedding.")
    return find_token(model, token, vocab=model.lens("norm").unembedding.vocab)


class _Search:
    def __init__(self, trials: Trials, token: Token, options: PromoteOptions, progress: ProgressCallback) -> None:
        self.trials, self.token, self.options, self.progress = trials, token, options, progress

    def promotion(self, text: str) -> Promotion:
        before = self.trials.run({})
        factors, why = self._add(before)
        if why is None:
            factors = self._weakest(self._without_needless(factors))
        after = self.trials.run(factors)
        return Promotion(
            model=self.trials.model.source,
            text=text,
            token=self.token,
            position=self.trials.position,
            works=after.works,
            memories=tuple(EditedMemory(str(memory), factor, 0.0) for memory, factor in sorted(factors.items())),
            coefficients=self.trials.coefficients(factors),
            before=self._described(before),
            after=self._described(after),
            why=why,
            texts=self.trials.texts,
        )

    def _described(self, outcome: Outcome) -> Prediction:
        predicted = spelling(self.trials.model.tokenizer, outcome.prediction)
        return Prediction(outcome.rank, outcome.probability, predicted, outcome.prediction_probability)

    def _add(self, outcome: Outcome) -> tuple[dict[Memory, float], str | None]:
        """Memories at their strongest factors, added one at a time until the token is the prediction; or why it is not."""
        factors: dict[Memory, float] = {}
        while not outcome.works:
            self.progress(
                Progress(
                    "promote", len(factors), self.options.max_memories, unit="memories", detail=f"rank {outcome.rank:,}"
                )
            )
            if len(factors) == self.options.max_memories:
                return (
                    factors,
                    f"{self.options.max_memories} memories, the most that --max-memories allows, are not enough.",
                )
            best = self._best_addition(factors)
            added = None if best is None else self.trials.run(best)
            if best is None or added is None or added.margin <= outcome.margin:
                return (
                    factors,
                    f"No other memory brings the token closer with a factor from 0 to {self.options.max_factor:g}.",
                )
            factors, outcome = best, added
        return factors, None

    def _best_addition(self, factors: dict[Memory, float]) -> dict[Memory, float] | None:
        """The factors with one more memory: of those that promise most to first order, the one that does most in a run."""
        trials = [factors | {memory: factor} for memory, factor in self._candidates(factors).items()]
        outcomes = self.trials.run_all(trials)
        margins = [outcome.margin for outcome in outcomes]
        return trials[margins.index(max(margins))] if trials else None

    def _candidates(self, factors: Mapping[Memory, float]) -> dict[Memory, float]:
        """Memories, each with its strongest factor, that raise the margin most to first order."""
        slopes = self.trials.slopes(factors)
        for memory in factors:
            slopes[memory.layer][memory.memory] = 0
        largest = float(self.options.max_factor)
        gains = torch.cat([torch.where(row > 0, row * (largest - 1), -row) for row in slopes])
        places = torch.cat([row.new_tensor(range(len(row))).long() for row in slopes])
        layers = torch.cat([torch.full((len(row),), layer, device=row.device) for layer, row in enumerate(slopes)])
        highest = gains.topk(min(self.options.candidates, len(gains))).indices
        highest = highest[gains[highest] > 0]
        memories = [Memory(*pair) for pair in zip(layers[highest].tolist(), places[highest].tolist(), strict=True)]
        return {memory: largest if slopes[memory.layer][memory.memory] > 0 else 0.0 for memory in memories}

    def _without_needless(self, factors: dict[Memory, float]) -> dict[Memory, float]:
        """The factors without memories that are not needed, until every one is."""
        while factors:
            trials = [{other: factor for other, factor in factors.items() if other != memory} for memory in factors]
            outcomes = self.trials.run_all(trials)
            order = sorted(range(len(trials)), key=lambda number: -outcomes[number].margin)
            # One pass over many texts rounds otherwise than a pass over one, which decides.
            smaller = next((trials[i] for i in order if outcomes[i].works and self.trials.run(trials[i]).works), None)
            if smaller is None:
                return factors
            factors = smaller
        return factors

    def _weakest(self, factors: dict[Memory, float]) -> dict[Memory, float]:
        """The factors moved towards 1, all by one share, as far as the token stays the prediction and all are needed."""
        while True:
            weaker = self._bisected(factors)
            needed = self._without_needless(weaker)
            if len(needed) == len(weaker):
                return weaker
            factors = needed

    def _bisected(self, factors: dict[Memory, float]) -> dict[Memory, float]:
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            strength = (low + high) / 2
            works = self.trials.run(_at_strength(factors, strength)).works
            low, high = (low, strength) if works else (strength, high)
        return _at_strength(factors, high)


def _at_strength(factors: Mapping[Memory, float], strength: float) -> dict[Memory, float]:
    return {memory: 1 + strength * (factor - 1) for memory, factor in factors.items()}
