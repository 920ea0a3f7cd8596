"""Whether what a value promotes is what follows the prefixes that trigger its key."""

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from ffscope.models.lens import Lens
from ffscope.models.memory_model import MemoryModel
from ffscope.models.ranking import rank_of
from ffscope.progress import Progress, Tell, nobody
from ffscope.running.parts import Parts
from ffscope.study import Study


def find_agreement(study: Study, model: MemoryModel, *, lens: str = "norm", progress: Tell = nobody) -> None:
    """Hold every value against its key's triggers: agreement.parquet, one row for every memory that has one."""
    study.need("triggers")
    reading = model.lens(lens)
    settings = {"lens": lens}
    study.need("values", settings)
    if study.done("agreement", settings):
        return
    start = time.perf_counter()
    parts = Parts(study, "agreement.parquet", settings)
    for layer in parts.missing(model.layers):
        progress(Progress("agreement", layer, model.layers, unit="layers"))
        columns = _of_triggers(study, layer)
        columns["next_rank"] = _next_ranks(reading, layer, columns)
        parts.keep(layer, columns)
    parts.join(model.layers)
    study.finish("agreement", settings, seconds=time.perf_counter() - start)
    parts.drop()
    progress(Progress("agreement", model.layers, model.layers, unit="layers"))


def _of_triggers(study: Study, layer: int) -> dict[str, Any]:
    """One layer's rows, but for the rank, which needs the whole distribution."""
    triggers = _read(study, "triggers.parquet", layer, ["memory", "rank", "next_token"])
    values = _read(study, "values.parquet", layer, ["memory", "top_tokens", "max_prob"])
    tops = values["top_tokens"].combine_chunks()
    top_token = tops.flatten().to_numpy()[tops.offsets.to_numpy()[:-1]]  # values are in the order of their memories
    every, rank, following = (triggers[name].to_numpy() for name in ("memory", "rank", "next_token"))
    memory, first, counts = np.unique(every, return_index=True, return_counts=True)
    assert (rank[first] == 1).all()
    # An end of text without a token is -1 and agrees with nothing.
    same = np.add.reduceat((following == top_token[every]).astype(np.int64), first) if len(first) else counts
    return {
        "layer": np.full(len(memory), layer, dtype=np.int32),
        "memory": memory,
        "top_token": top_token[memory],
        "next_token": following[first],
        "agrees": following[first] == top_token[memory],
        "max_prob": values["max_prob"].to_numpy()[memory],
        "triggers": counts.astype(np.int32),
        "precision": (same / counts).astype(np.float32),
    }


def _next_ranks(lens: Lens, layer: int, columns: dict[str, Any]) -> pa.Array:
    """Where the next token of each memory's first trigger ranks in its value; null where the text ended without one."""
    memories, tokens = (torch.from_numpy(columns[name]).long() for name in ("memory", "next_token"))
    outside = (tokens < 0) | (tokens >= lens.unembedding.shape[1])
    device = lens.unembedding.device
    ranks = [
        rank_of(some.to(device), logits).cpu()
        for some, logits in zip(
            tokens.masked_fill(outside, 0).split(lens.chunk), lens.value_chunks(layer, memories), strict=True
        )
    ]
    return pa.array(torch.cat(ranks).int().numpy(), mask=outside.numpy())


def _read(study: Study, table: str, layer: int, columns: list[str]) -> pa.Table:
    return pq.read_table(study.path(table), columns=columns, filters=[("layer", "==", layer)])
