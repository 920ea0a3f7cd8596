"""Held-out perplexity by the share of the memories that is pruned, or a model without some of them."""

import time
from typing import Any

import pyarrow as pa

from ffscope.effects.baseline import read_baselines
from ffscope.effects.groups import digest_of
from ffscope.effects.held_out import HeldOutLoss, held_out_batches
from ffscope.effects.shards import added, summed
from ffscope.effects.texts import is_masked
from ffscope.pruning.curves import curve_columns, measured_points, perplexity_of
from ffscope.pruning.ranking import available_scores, check_has_loss
from ffscope.pruning.scored import Scored, compute_scores
from ffscope.pruning.written import write_pruned
from ffscope.search.passes import bos_of
from ffscope.stages.prune import PrunedModelOptions, PruneOptions
from ffscope.stages.stage import Work
from ffscope.study.folder import Study
from ffscope.study.resumable import ResumableFolder
from ffscope.study.schemas import SCHEMAS


def run(work: Work) -> str | None:
    """Run the stage, or write a pruned model; returns what is said of it."""
    work.study.need("triggers")
    check_has_loss(work.info)
    output = work.options(PrunedModelOptions)
    if output.out is not None:
        return str(write_pruned(work, output))
    _measure(work)
    return None


def _measure(work: Work) -> None:
    """Measure the curves, unless they were measured with these options."""
    study, model, options = work.study, work.info, work.options(PruneOptions)
    scores = available_scores(study, model, options.score_names)
    settings = {**vars(options), "scores": ",".join(scores)}
    if study.has("prune") and study.manifest["stages"]["prune"]["options"] == settings:
        return
    start, bos = time.perf_counter(), bos_of(study, model)
    baselines = read_baselines(study, model, options.replace, option="--replace")
    batches = held_out_batches(study, model, options.prune_prefixes)
    # Last, so that a study without what is needed gets no folder.
    folder = ResumableFolder(study, "prune", settings)
    scored = compute_scores(work, folder)
    points = measured_points(scored.rankings, scores, options, model.memories)
    groups = tuple(point.group for point in points)
    function = HeldOutLoss(bos, groups, baselines)
    state = summed(work, folder, "pruning", function, batches, merge=added, depends=digest_of(groups))
    _write(study, scored, curve_columns(points, state))
    intact = float(state["loss"][0]) / int(state["count"])
    entries: dict[str, Any] = {"loss": intact, "perplexity": perplexity_of(intact), "passes": 1 + len(groups)}
    entries |= {"prefixes": int(state["count"]), "contribution_prefixes": scored.prefixes, "masked": is_masked(model)}
    study.finish("prune", {}, seconds=time.perf_counter() - start, options=settings, **entries)
    folder.drop()


def _write(study: Study, scored: Scored, pruning: dict[str, Any]) -> None:
    tables = {"pruning_scores": scored.contributions, "redundancy": scored.redundancy, "pruning": pruning}
    for name, columns in tables.items():
        schema = SCHEMAS[f"{name}.parquet"]
        table = schema.empty_table() if columns is None else pa.Table.from_pydict(columns, schema)
        with study.table(f"{name}.parquet") as writer:
            writer.write_table(table, row_group_size=2**16)
