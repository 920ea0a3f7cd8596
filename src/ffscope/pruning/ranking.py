"""The order in which each score prunes the memories of a model."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow.parquet as pq

from ffscope.axes import Array
from ffscope.effects.groups import Group
from ffscope.errors import LensError, StudyError
from ffscope.models.info import ModelInfo
from ffscope.stages.prune import RANDOM, SCORES
from ffscope.study.folder import Study

logger = logging.getLogger(__name__)


def check_has_loss(model: ModelInfo) -> None:
    """Raise for a model without logits."""
    if model.no_lens is not None:
        raise LensError(
            f"{model.no_lens} Without logits there is no loss, so pruned models cannot be compared. Expected a model with an "
            "unembedding."
        )


def available_scores(study: Study, model: ModelInfo, names: Sequence[str]) -> tuple[str, ...]:
    """These scores, or without names all that the study has what they need for; what others need is logged."""
    missing = {name: reason for name in names or SCORES if (reason := why_missing(study, model, name))}
    for name, reason in missing.items():
        if names:
            raise StudyError(f"The score {name} cannot be used: {reason}")
        logger.warning("Left out: the score %s. %s", name, reason)
    return tuple(name for name in names or SCORES if name not in missing)


def why_missing(study: Study, model: ModelInfo, score: str) -> str | None:
    """What a score needs that the study does not have, and the command that makes it."""
    if score in ("effect", "effect_size") and not study.has("effects"):
        return f"It needs effects.parquet. Run `ffscope effects {study.folder}` first."
    if score in ("firing", "redundancy"):
        searched, total = len(pq.read_table(study.path("memories.parquet"), columns=["layer"])), sum(model.memories)
        if searched < total:
            return (
                f"It needs the triggers of every memory, and this study searched {searched:,} of {total:,}. Make a study of all "
                "memories: leave out --layers and --memories of `ffscope run`."
            )
    return None


class Rankings:
    """The places of all memories in the order of each score, from 0 for the first that is pruned."""

    def __init__(
        self, study: Study, model: ModelInfo, contributions: Mapping[str, Array], redundancy: Mapping[str, Array] | None
    ) -> None:
        """`contributions` are the columns of pruning_scores.parquet, `redundancy` those of redundancy.parquet."""
        self._study, self._model, self._contributions, self._redundancy = study, model, contributions, redundancy
        self._seed, self._total = study.settings["seed"], sum(model.memories)
        self._ties = self._permutation(b"pruning")

    def of(self, score: str, seed: int | None = None) -> Array:
        """The places by one score, over all layers; random ones by their seed. Equal scores are in a random order."""
        if score == RANDOM:
            return self._permutation(b"random", seed or 0)
        keys = (self._ties, *self._keys(score))
        places = np.empty(self._total, dtype=np.int64)
        places[np.lexsort(keys)] = np.arange(self._total)
        return places

    def _keys(self, score: str) -> tuple[Array, ...]:
        """What is sorted by, the last one first."""
        if score in ("effect", "effect_size"):
            table = pq.read_table(self._study.path("effects.parquet"), columns=[score])
            return (table[score].to_numpy(),)
        if score == "firing":
            table = pq.read_table(self._study.path("memories.parquet"), columns=["layer", "memory", "fired", "seen"])
            table = table.sort_by([("layer", "ascending"), ("memory", "ascending")])
            return (table["fired"].to_numpy() / np.maximum(table["seen"].to_numpy(), 1),)
        if score == "redundancy":
            assert self._redundancy is not None
            left = self._redundancy["redundancy_left"]
            return np.where(left > 0, self._contributions["contribution"], 0), -left
        return (self._contributions[score],)

    def _permutation(self, name: bytes, seed: int = 0) -> Array:
        return np.random.default_rng([self._seed, seed, *name]).permutation(self._total)


def lowest(places: Array, memories: Sequence[int], share: float, *, layer: int | None = None) -> Group:
    """The first of an order: this share of all memories, or of those of one layer, rounded."""
    mask = np.zeros(len(places), dtype=bool)
    start = sum(memories[:layer]) if layer is not None else 0
    rows = slice(start, start + memories[layer] if layer is not None else len(places))
    count = round(share * (rows.stop - rows.start))
    mask[start + np.argsort(places[rows], kind="stable")[:count]] = True
    where = "all layers" if layer is None else f"layer {layer}"
    return Group(f"{share:g} of {where}", tuple(np.split(mask, np.cumsum(memories)[:-1])))
