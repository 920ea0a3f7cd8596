"""The random sample of memories to annotate, which is the same for every person and every language model."""

import numpy as np
import pyarrow.parquet as pq

from ffscope.memory_name import Memory
from ffscope.study.folder import Study


def draw_memories(study: Study, count: int, *, seed: int, least: int = 1) -> list[list[Memory]]:
    """Up to `count` random memories per layer, in the order in which they are drawn.

    They are drawn from the memories with a trigger; those with fewer than `least` triggers are then skipped, so that annotators
    who need different numbers of triggers still get the same memories where possible.
    """
    table = pq.read_table(study.path("triggers.parquet"), columns=["layer", "memory", "rank"])
    layers, memories, ranks = (table[name].to_numpy() for name in ("layer", "memory", "rank"))
    drawn = []
    for layer in np.unique(layers).tolist():
        in_layer = layers == layer
        generator = np.random.default_rng([seed, *b"annotating", layer])
        shuffled = generator.permutation(np.unique(memories[in_layer]))
        enough = shuffled[np.isin(shuffled, memories[in_layer & (ranks == least)])]
        drawn.append([Memory(layer, memory) for memory in enough[:count].tolist()])
    return drawn
