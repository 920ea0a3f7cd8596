"""The tokens that follow the top triggers of a study."""

import pyarrow.parquet as pq
import torch
from torch import Tensor

from ffscope.axes import Int
from ffscope.study.folder import Study


def tokens_after_triggers(study: Study, layer: int, count: int) -> Int[Tensor, "memory"]:
    """The token after the top trigger of each of a layer's `count` memories; -1 where there is none."""
    firsts = [("layer", "==", layer), ("rank", "==", 1)]
    table = pq.read_table(study.path("triggers.parquet"), columns=["memory", "next_token"], filters=firsts)
    next_tokens = torch.full((count,), -1)
    next_tokens[torch.from_numpy(table["memory"].to_numpy().copy()).long()] = torch.from_numpy(
        table["next_token"].to_numpy().copy()
    ).long()
    return next_tokens
