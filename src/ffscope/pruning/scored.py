"""The scores of a study's memories: those that its tables have, and those that are computed with the model."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from ffscope.axes import Array
from ffscope.effects.shards import added, computed, summed
from ffscope.pruning.contributions import Contributions, sampled_text
from ffscope.pruning.ranking import Rankings, why_missing
from ffscope.pruning.redundancy import layer_redundancy, read_triggers, related_pairs
from ffscope.search.passes import bos_of
from ffscope.stages.prune import PruneOptions
from ffscope.stages.stage import Work
from ffscope.study.folder import Study
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


def rankings_for(work: Work, score: str) -> Rankings:
    """The order by one score: what it needs is read from a finished stage, or else computed."""
    study, model, sentences = work.study, work.info, work.options(PruneOptions).prune_sentences
    if score not in ("contribution", "squared", "redundancy"):
        return Rankings(study, model, {}, None)
    if study.has("prune") and study.manifest["stages"]["prune"]["options"]["prune_sentences"] == sentences:
        return Rankings(study, model, _columns(study, "pruning_scores"), _columns(study, "redundancy"))
    folder = ResumableFolder(study, "pruned_model", {"prune_sentences": sentences})
    rankings = compute_scores(work, folder).rankings
    folder.drop()
    return rankings


def _columns(study: Study, name: str) -> dict[str, Array]:
    table = pq.read_table(study.path(f"{name}.parquet"))
    return {column: table[column].to_numpy() for column in table.column_names}


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
