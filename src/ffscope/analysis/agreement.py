"""Whether the top token of a value is the one that follows its key's triggers. Needs only the study's tables, no model."""

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ffscope.errors import LensError
from ffscope.options.analysis import LensOptions
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.stages.stage import Work
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS

_TABLE = "agreement.parquet"


def find_agreement(study: Study, *, lens: str | None = None, progress: ProgressCallback = no_progress) -> None:
    """Compare every value with its key's triggers: agreement.parquet, one row per memory that has a trigger.

    If a lens is given, it must be the one that the values were computed with.
    """
    study.need("triggers")
    study.need("values", {} if lens is None else {"lens": lens})
    if study.done("agreement", {}):
        return
    start = time.perf_counter()
    layers = len(study.manifest["model"]["memories"])
    with study.table(_TABLE) as writer:
        for layer in range(layers):
            progress(Progress("agreement", layer, layers, unit="layers"))
            writer.write_table(pa.Table.from_pydict(_columns(study, layer), SCHEMAS[_TABLE]))
    study.finish("agreement", {}, seconds=time.perf_counter() - start)
    progress(Progress("agreement", layers, layers, unit="layers"))


def _columns(study: Study, layer: int) -> dict[str, Any]:
    """The rows of one layer."""
    triggers = _read(study, "triggers.parquet", layer, ["memory", "rank", "next_token"])
    values = _read(study, "values.parquet", layer, ["memory", "top_tokens", "max_prob", "next_rank"])
    if values["top_tokens"].null_count:
        raise LensError("The model has no unembedding, so its values cannot be compared with the next tokens.")
    top_token = pc.list_element(values["top_tokens"], 0).to_numpy()  # the values are sorted by memory
    memories, rank, following = (triggers[name].to_numpy() for name in ("memory", "rank", "next_token"))
    memory, first, counts = np.unique(memories, return_index=True, return_counts=True)
    assert (rank[first] == 1).all()
    # -1, the end of a text without EOS, never agrees.
    same = np.add.reduceat((following == top_token[memories]).astype(np.int64), first) if len(first) else counts
    return {
        "layer": np.full(len(memory), layer, dtype=np.int32),
        "memory": memory,
        "top_token": top_token[memory],
        "next_token": following[first],
        "agrees": following[first] == top_token[memory],
        "next_rank": values["next_rank"].take(memory),
        "max_prob": values["max_prob"].to_numpy()[memory],
        "triggers": counts.astype(np.int32),
        "precision": (same / counts).astype(np.float32),
    }


def _read(study: Study, table: str, layer: int, columns: list[str]) -> pa.Table:
    return pq.read_table(study.path(table), columns=columns, filters=[("layer", "==", layer)])


def run(work: Work) -> None:
    """Run the stage."""
    find_agreement(work.study, lens=work.options(LensOptions).lens, progress=work.progress)
