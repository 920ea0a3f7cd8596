"""Studies with known patterns that are hard to find: coefficients of every prefix, and many triggers without the pattern."""

import json
from dataclasses import asdict, dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ffscope.corpus.ingest import write_sentences
from ffscope.options.corpus import CorpusOptions
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS
from planted import SETTINGS, TOP, _shuffled, account, make_tokenizer
from planted_kinds import KINDS
from planted_text import Text

PURITIES = 0.4, 0.6, 0.8, 1.0  # the share of the first triggers that have the planted pattern
TRIGGERS = 25  # the first triggers, over which the purity is exact
EDGES = 2.0 ** np.arange(-8, 13)  # of the histogram
_FIRES = 0.9  # the share of a pattern's prefixes on which the memory fires
_MOST_OTHERS = 150  # prefixes without the pattern on which it fires
_TOKENS = 5000


@dataclass
class Planted:
    """What a memory was made to fire on, and what is needed to recognise it in a description."""

    memory: int
    kind: str
    name: str
    purity: float
    ranks: list[int]  # of the first 25 triggers, those that have it
    words: list[str] = field(default_factory=list)
    pattern: str = ""
    naming: list[str] = field(default_factory=list)


def plant(folder, *, seed=0, sentences=8000, each=12, nothing=50, kinds=tuple(KINDS)):
    """A study with `each` memories of every kind, and some that fire at random; returns it and what was planted."""
    generator = np.random.default_rng(seed)
    corpus, texts = _shuffled(folder.with_suffix(".jsonl"), generator)
    tokenizer = make_tokenizer(texts[:2000], size=_TOKENS)
    with Study.writing(folder, account(0, len(tokenizer))) as study:
        write_sentences(study, tokenizer, CorpusOptions(str(corpus), sentences=sentences))
        text = Text(study)
        memories, planted = Memories(text, generator), []
        for kind in kinds:
            instances = list(KINDS[kind](text, generator))
            assert instances, f"the text has too few prefixes for {kind}"
            order = [
                number for _ in range(-(-each // len(instances))) for number in generator.permutation(len(instances))
            ]
            purities = [purity for _ in range(-(-each // 4)) for purity in generator.permutation(PURITIES)]
            for number, purity in zip(order[:each], purities[:each], strict=True):
                planted.append(memories.add(kind, instances[number], float(purity)))
        planted += [memories.add_nothing() for _ in range(nothing)]
        study.manifest["model"]["memories"] = [len(planted)]
        memories.write(study)
        _drop_topics(study)
    folder.with_suffix(".planted.json").write_text(json.dumps([asdict(entry) for entry in planted]))
    return study, planted


def planted_before(folder):
    """An earlier study in this folder and what was planted in it, or None."""
    file = folder.with_suffix(".planted.json")
    if not file.is_file():
        return None
    return Study.open(folder), [Planted(**entry) for entry in json.loads(file.read_text())]


class Memories:
    """Memories with coefficients over all prefixes of a text, and the tables that a search would have written."""

    def __init__(self, text, generator):
        self.text, self.generator = text, generator
        self.one_in = 1
        while len(text.of) / self.one_in >= 16384:
            self.one_in *= 2
        self.sampled = np.flatnonzero(generator.random(len(text.of)) < 1 / self.one_in)
        self.triggers, self.memories = [], []

    def add(self, kind, instance, purity):
        """A memory that fires on an instance of a kind."""
        if instance.recurring is None:
            coefficients = self.coefficients(instance.mask, purity, silent=instance.silent)
        else:  # every trigger is of the class; the recurring word is at a few of them
            recurring, purity = int(self.generator.integers(4, 7)), 1.0
            others = self._one_per_sentence(np.flatnonzero(instance.recurring))[: 2 * recurring]
            share = 1 - recurring / TRIGGERS
            coefficients = self.coefficients(instance.mask & ~instance.recurring, share, others=others)
        best = self.add_coefficients(coefficients)
        ranks = [rank for rank, prefix in enumerate(best[:TRIGGERS], 1) if instance.mask[prefix]]
        number = len(self.memories) - 1
        return Planted(number, kind, instance.name, purity, ranks, instance.words, instance.pattern, instance.naming)

    def add_nothing(self):
        """A memory that fires on random prefixes."""
        self.add_coefficients(self.coefficients(np.zeros(len(self.text.of), dtype=bool), 0.0))
        return Planted(len(self.memories) - 1, "nothing", "nothing", 0.0, [])

    def coefficients(self, mask, purity, *, others=None, silent=None):
        """Mostly 0, often small, above 1 where it fires: on most of the mask, and on others without it."""
        text, generator = self.text, self.generator
        size = len(text.of)
        small = generator.random(size) < generator.uniform(0.05, 0.15)
        coefficients = np.where(small, 0.5 * generator.random(size), 0.0)
        firing = mask & (generator.random(size) < _FIRES)
        if others is None:
            others = self._others(mask, firing, purity)
        firing &= ~np.isin(text.of, text.of[others])  # one prefix of a sentence is a trigger
        coefficients[firing] = 1 + generator.exponential(0.3, firing.sum())
        if silent is not None:
            coefficients[silent] = 0.0
            others = others[~silent[others]]
        best = np.sort(np.maximum.reduceat(np.where(firing, coefficients, 0.0), text.start))[::-1]
        coefficients[others] = self._interleaved(best[best > 0], len(others), purity)
        return coefficients.astype(np.float32)

    def _others(self, mask, firing, purity):
        """Random prefixes without the pattern, one per sentence: of sentences where nothing fires, if there are enough."""
        text = self.text
        sentences = text.in_sentences(firing)
        count = round(
            np.clip(sentences * (1 - purity) / max(purity, 0.01), TOP * (1 - purity), _MOST_OTHERS * (1 - purity))
        )
        free = np.flatnonzero(~mask & ~np.isin(text.of, text.of[firing]))
        chosen = self._one_per_sentence(free)[:count]
        if len(chosen) < count:
            chosen = self._one_per_sentence(np.flatnonzero(~mask))[:count]
        return chosen

    def _one_per_sentence(self, prefixes):
        """One random prefix of each sentence that has any, in random order."""
        prefixes = self.generator.permutation(prefixes)
        _, first = np.unique(self.text.of[prefixes], return_index=True)
        return self.generator.permutation(prefixes[first])

    def _interleaved(self, best, count, purity):
        """Coefficients for the others, which give the first 25 triggers, and the next 25, their share of the pattern."""
        if not len(best):
            return 1 + self.generator.exponential(0.3, count)
        flags = []
        for _ in range(TOP // TRIGGERS):
            flags += self.generator.permutation(np.arange(TRIGGERS) < round(purity * TRIGGERS)).tolist()
        bounds = np.concatenate([[best[0] + 0.1], best, [1.0]])
        after = np.minimum(
            np.cumsum(flags)[~np.array(flags)], len(best)
        )  # how many with the pattern come before each other
        low, high = bounds[after + 1][:count], bounds[after][:count]
        rest = np.full(count - len(low), bounds[min(sum(flags), len(best))])
        inside = self.generator.uniform(0.05, 0.95, count)
        high = np.concatenate([high, rest])
        return (low := np.concatenate([low, np.ones(len(rest))])) + inside * (high - low)

    def add_coefficients(self, coefficients):
        """Add a memory with these coefficients of all prefixes; returns its triggers, best first."""
        text, memory = self.text, len(self.memories)
        best = np.maximum.reduceat(coefficients, text.start)
        order = np.lexsort((text.sentence, -best))[:TOP]
        order = order[best[order] > 0]
        starts, lengths = text.start[order], text.length[order]
        pairs = zip(starts, lengths, strict=True)
        prefixes = np.array(
            [start + coefficients[start : start + length].argmax() for start, length in pairs], dtype=int
        )
        self.triggers += [
            {
                "layer": 0,
                "memory": memory,
                "rank": rank,
                "coefficient": float(coefficients[prefix]),
                "sentence": int(text.sentence[text.of[prefix]]),
                "position": int(text.position[prefix]),
                "next_token": int(text.next_token[prefix]),
            }
            for rank, prefix in enumerate(prefixes, 1)
        ]
        self.memories.append(self._statistics(memory, coefficients))
        return prefixes

    def _statistics(self, memory, coefficients):
        text, values = self.text, coefficients[self.sampled]
        active = self.sampled[values > 0]
        sample = self.generator.permutation(active)[:10]
        sample = sample[np.argsort(-coefficients[sample], kind="stable")]
        bins = np.where(values > 0, 23 + np.searchsorted(EDGES, values, side="right"), 22)
        return {
            "layer": 0,
            "memory": memory,
            "seen": len(values),
            "fired": len(active),
            "mean": float(values.mean()),
            "maximum": float(coefficients.max()),
            "histogram": np.bincount(bins, minlength=45).tolist(),
            "sample_coefficients": coefficients[sample].tolist(),
            "sample_sentences": text.sentence[text.of[sample]].tolist(),
            "sample_positions": text.position[sample].tolist(),
        }

    def write(self, study):
        """Write the tables of the search, and mark it as done."""
        for name, rows in (("triggers.parquet", self.triggers), ("memories.parquet", self.memories)):
            with study.table(name) as writer:
                writer.write_table(pa.Table.from_pylist(rows, SCHEMAS[name]))
        settings = {**SETTINGS, "picked_one_in": self.one_in, "histogram_edges": EDGES.tolist()}
        study.finish("triggers", settings, seconds=0.0, tokens=0, **study.manifest["corpus"]["searched"])


def _drop_topics(study):
    """The topics of documents are what is to be found."""
    table = pq.read_table(study.path("documents.parquet"))
    index = table.schema.get_field_index("topic")
    pq.write_table(table.set_column(index, "topic", pa.nulls(len(table), pa.string())), study.path("documents.parquet"))
