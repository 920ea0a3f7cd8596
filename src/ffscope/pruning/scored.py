"""The scores of a study's memories: those that its tables have, and those that are computed with the model."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from safetensors.numpy import load_file

from ffscope.axes import Array
from ffscope.effects.shards import added, computed, summed
from ffscope.pruning.contributions import Contributions, sampled_text
from ffscope.pruning.ranking import Rankings, why_missing
from ffscope.pruning.redundancy import layer_redundancy, read_triggers, related_pairs
from ffscope.search.passes import bos_of
from ffscope.stages.prune import PruneOptions
from ffscope.stages.stage import Work
from ffscope.study.resumable import ResumableFolder


class Scored(NamedTuple):
    """The columns of pruning_scores.parquet and of redundancy.parquet, and the orders that follow."""

    contributions: dict[str, Any]
    redundancy: dict[str, Any] | None  # None if the study lacks triggers for it
    rankings: Rankings
    prefixes: int  # over which contributions are averaged


def compute_scores(work: Work, folder: ResumableFolder) -> Scored:
    """Every score that the study has what it needs for."""
    study, model = work.study, work.info
    text = sampled_text(study, work.options(PruneOptions).prune_sentences)
    state = summed(work, folder, "contributions", Contributions(bos_of(study, model)), text, merge=added)
    prefixes = int(state["count"])
    names = {
        "layer": np.repeat(np.arange(model.layers), model.memories),
        "memory": np.concatenate([np.arange(count) for count in model.memories]),
    }
    means = {name: (state[name] / prefixes).float().numpy() for name in ("contribution", "squared")}
    redundancy = None
    if why_missing(study, model, "redundancy") is None:
        redundancy = {**names, **_redundancy(work, folder, means["contribution"])}
    return Scored({**names, **means}, redundancy, Rankings(study, model, means, redundancy), prefixes)


def _redundancy(work: Work, folder: ResumableFolder, contributions: Array) -> dict[str, Any]:
    """The columns of redundancy.parquet after the names of the memories."""
    memories = work.info.memories
    triggers = read_triggers(work.study, memories)
    paths = computed(work, folder, "redundancy", related_pairs, triggers, sizes=list(memories), unit="memories")
    starts = np.cumsum([0, *memories])
    layers = [
        layer_redundancy(here, load_file(path), contributions[start : start + here.memories])
        for here, path, start in zip(triggers, paths, starts, strict=False)
    ]
    columns = {name: np.concatenate([getattr(layer, name) for layer in layers]) for name in vars(layers[0])}
    alone = columns["partner"] < 0
    return {
        "redundancy": columns["redundancy"].astype(np.float32),
        "partner": pa.array(columns["partner"], pa.int32(), mask=alone),
        "cosine": pa.array(columns["cosine"], pa.float32(), mask=alone),
        "shared_triggers": columns["shared"].astype(np.int32),
        "triggers": columns["triggers"],
        "redundancy_left": columns["left"].astype(np.float32),
    }
