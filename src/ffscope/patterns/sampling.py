"""Which memories are annotated: the same for every person and every language model."""

import numpy as np
import pyarrow.parquet as pq

from ffscope.memory_name import Memory
from ffscope.study.folder import Study


def draw_memories(study: Study, count: int, *, seed: int, least: int = 1) -> list[list[Memory]]:
    """Up to `count` memories of every layer at random, in the order in which they are drawn.

    They are drawn among those with a trigger; those with fewer than `least` triggers are passed over, so that two who need more
    or fewer triggers are still given the same memories.
    """
    table = pq.read_table(study.path("triggers.parquet"), columns=["layer", "memory", "rank"])
    layers, memories, ranks = (table[name].to_numpy() for name in ("layer", "memory", "rank"))
    drawn = []
    for layer in np.unique(layers).tolist():
        here = layers == layer
        generator = np.random.default_rng([seed, *b"annotating", layer])
        turns = generator.permutation(np.unique(memories[here]))
        enough = turns[np.isin(turns, memories[here & (ranks == least)])]
        drawn.append([Memory(layer, memory) for memory in enough[:count].tolist()])
    return drawn
