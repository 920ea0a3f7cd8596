"""Near misses: prefixes that have the form of a pattern, but on which the memory does not fire like on its triggers."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ffscope.memory_name import Memory
from ffscope.patterns.conditional_background import ConditionalBackground
from ffscope.patterns.shallow import Shared
from ffscope.study.folder import Study

_STRONG = 0.5  # the share of the weakest trigger's coefficient from which the memory counts as firing


class NearMisses:
    """How many prefixes of the corpus a memory fires on, to compare with how many have a form."""

    def __init__(self, study: Study, triggers: pa.Table, conditional: ConditionalBackground, *, complete: bool) -> None:
        self.conditional, self.complete = conditional, complete  # whether it has all prefixes of the sample
        # sentences that were searched, for each of the sample
        self.scale = study.manifest["stages"]["triggers"]["sentences"] / max(conditional.sentences, 1)
        self.most = int(triggers["rank"].to_numpy().max(initial=0))
        self.edges = np.array(study.settings.get("histogram_edges", []))
        counts = pq.read_table(study.path("memories.parquet"), columns=["layer", "memory", "seen", "histogram"])
        self.memories = {
            Memory(layer, memory): (seen, np.array(histogram))
            for layer, memory, seen, histogram in zip(*counts.to_pydict().values(), strict=True)
        }
        places = zip(triggers["layer"].to_pylist(), triggers["memory"].to_pylist(), strict=True)
        self.weakest: dict[Memory, float] = {}  # of the triggers that are examined
        self.listed: dict[Memory, int] = {}
        for place, coefficient in zip(places, triggers["coefficient"].to_pylist(), strict=True):
            memory = Memory(*place)
            self.weakest[memory] = min(self.weakest.get(memory, coefficient), coefficient)
            self.listed[memory] = self.listed.get(memory, 0) + 1

    def firing_share(self, memory: Memory, form: Shared) -> float | None:
        """The share of prefixes with a form on which the memory fires half as strongly as on its weakest trigger, at most.

        A memory with fewer triggers than others fires in no other sentence, so that sentences are counted, if all of the sample
        are at hand; otherwise its histogram is used. None if neither is possible.
        """
        if self.listed[memory] < self.most and self.complete:
            sentences = self.conditional.sentences_with(form.form, form.code)
            return None if sentences is None else min(1.0, form.bits.bit_count() / max(self.scale * sentences, 1))
        seen, histogram = self.memories[memory]
        if not seen or self.weakest[memory] <= 0 or not len(self.edges) or not histogram.sum():
            return None
        strong = int(histogram[self._first_bin(_STRONG * self.weakest[memory]) :].sum())
        return min(1.0, (strong + 1) / seen / form.rate)

    def _first_bin(self, coefficient: float) -> int:
        """The number of the histogram's bin with this coefficient; everything above is in later bins."""
        return len(self.edges) + 2 + int(np.searchsorted(self.edges, coefficient, side="right"))
