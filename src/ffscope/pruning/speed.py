"""How many tokens per second models read, measured in turns so that all meet the same conditions."""

import time
from collections.abc import Sequence
from statistics import median

import torch

from ffscope.effects.held_out import HeldOutBatch, losses_of
from ffscope.models.memory_model import MemoryModel

_ROUNDS = 7  # the first is not counted
_TOKENS = 4096  # about as many a pass


def tokens_per_second(models: Sequence[MemoryModel], batches: Sequence[HeldOutBatch], bos: int | None) -> list[float]:
    """For each model the tokens of some held-out text, divided by the median time of a pass over it."""
    chosen, tokens = [], 0
    for batch in sorted(batches, key=lambda batch: -batch.tokens.size):
        if tokens < _TOKENS:
            chosen.append(batch)
            tokens += batch.tokens.size
    seconds: list[list[float]] = [[] for _ in models]
    for _ in range(_ROUNDS):
        for model, times in zip(models, seconds, strict=True):
            start = time.perf_counter()
            for batch in chosen:
                losses_of(model, batch, bos)
            if model.device.type == "cuda":
                torch.cuda.synchronize(model.device)
            times.append(time.perf_counter() - start)
    return [tokens / median(times[1:]) for times in seconds]
