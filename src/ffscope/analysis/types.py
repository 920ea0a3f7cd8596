"""Classifies every searched memory by published definitions, from its firings on a sample, its value and its effects."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ffscope.axes import Array
from ffscope.corpus.prefixes import chunks, tokens_of
from ffscope.memory_types.confidence import through_norm
from ffscope.memory_types.decisions import columns_of, decide
from ffscope.memory_types.firing import Block, Firings, batches_of, prefixes_of, record_firings
from ffscope.memory_types.ngrams import Limits
from ffscope.memory_types.positions import Window, choose_window
from ffscope.memory_types.quantities import NGRAMS, Text, firing_quantities, suppression, value_quantities
from ffscope.models.lenses import ChosenLens
from ffscope.models.memory_model import MemoryModel
from ffscope.search.passes import bos_of
from ffscope.stages.shards import Shards
from ffscope.stages.stage import Work
from ffscope.stages.types import TypeOptions
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS

logger = logging.getLogger(__name__)
_MOST_BITS = 2**29  # bytes of the firings of a shard
_WHOLE = (*NGRAMS, "ngram")  # quantities that are null where they are 0
_REAL = (
    *("suppressed", "mutual_information", "skew", "kurtosis", "frequency_correlation", "norm", "norm_percentile"),
    *("logit_variance", "variance_percentile", "through_norm"),
)


class Sample(NamedTuple):
    """Sentences in batches of one length, how often each token occurs in the whole text, and the positions that are compared."""

    batches: list[Array]
    counts: Array
    window: Window | None


class Memories(NamedTuple):
    """A block of memories, whether each is dead, and the share of its effect that runs through the final norm."""

    block: Block
    dead: Array
    through_norm: Array


@dataclass(frozen=True)
class Classifier:
    """Computes the rows of a shard."""

    options: TypeOptions
    lens: ChosenLens
    bos: int | None

    def __call__(self, model: MemoryModel, shard: tuple[Sample, list[Memories]]) -> dict[str, Any]:
        """The columns of the memories' rows."""
        sample, groups = shard
        text = Text.of(prefixes_of(sample.batches), sample.window)
        firings = record_firings(model, [group.block for group in groups], sample.batches, bos=self.bos)
        parts = [
            self._columns(model, group, recorded, text, sample.counts)
            for group, recorded in zip(groups, firings, strict=True)
        ]
        table = pa.concat_tables(pa.Table.from_pydict(part, SCHEMAS["types.parquet"]) for part in parts)
        return {name: table[name].combine_chunks() for name in table.column_names}

    def _columns(
        self, model: MemoryModel, group: Memories, firings: Firings, text: Text, counts: Array
    ) -> dict[str, Any]:
        options, block = self.options, group.block
        lens = None if model.top is None else self.lens.of(model)
        limits = Limits(options.type_coverage, options.type_presence, options.type_ngrams, options.type_firings)
        quantities, detected = firing_quantities(firings, text, limits)
        quantities |= value_quantities(model, lens, block, counts)
        quantities |= {
            "dead": group.dead,
            "suppressed": suppression(lens, block, quantities["ngram"], detected),
            "through_norm": group.through_norm,
        }
        return {
            "layer": [block.layer] * len(block.memories),
            "memory": block.memories,
            "firings": quantities["firings"],
            "detected": [tokens or None for tokens in detected],
            **{name: pa.array(quantities[name], mask=quantities[name] == 0) for name in _WHOLE},
            **{name: pa.array(quantities[name], from_pandas=True) for name in _REAL},  # NaN as null
            **columns_of(decide(quantities, options)),
        }


def shards(work: Work) -> Shards:
    """One shard per group of layers, or per part of a layer with very many memories."""
    study, options = work.study, work.options(TypeOptions)
    sample, sentences = _draw(study, options)
    prefixes = sum(batch.size for batch in sample.batches)
    groups = _grouped(_memories(study), most=max(8, 8 * _MOST_BITS // prefixes))
    window = sample.window
    return Shards(
        count=len(groups),
        input=lambda number: (sample, groups[number]),
        rows=Classifier(options, work.lens, bos_of(study, work.info)),
        sort_by=("layer", "memory"),
        sizes=[sum(len(memories.dead) for memories in group) for group in groups],
        unit="memories",
        entries={
            "sampled_sentences": sentences,
            "sampled_prefixes": prefixes,
            "positions": None if window is None else window.positions,
            "position_sentences": None if window is None else window.sentences,
            "effects": study.has("effects"),
        },
        depends={"effects": study.has("effects")},
    )


def _draw(study: Study, options: TypeOptions) -> tuple[Sample, int]:
    """A random sample of the searched sentences, and their number."""
    path, searched = study.path("sentences.parquet"), study.manifest["stages"]["triggers"]["sentences"]
    numbers, counts = [], np.zeros(0, dtype=np.int64)
    for chunk in chunks(path, first=searched):
        numbers.append(chunk.sentences)
        here = np.bincount(chunk.tokens, minlength=len(counts))
        here[: len(counts)] += counts
        counts = here
    generator = np.random.default_rng([study.settings["seed"], *b"types"])
    drawn = np.sort(generator.permutation(np.concatenate(numbers))[: options.type_sentences])
    tokens = tokens_of(path, drawn)
    sentences = [tokens[number] for number in drawn.tolist() if len(tokens[number])]
    rows = study.settings["batch_sentences"]
    batches = batches_of(sentences, tokens=study.settings["batch_tokens"], rows=rows)
    return Sample(batches, counts, _window(sentences, options)), len(sentences)


def _window(sentences: list[Array], options: TypeOptions) -> Window | None:
    """The positions that are compared, with a warning if they are fewer than the options ask for."""
    lengths = np.array([len(sentence) for sentence in sentences])
    least = options.type_position_sentences
    window = choose_window(lengths, positions=options.type_positions, sentences=least)
    if window is None:
        logger.warning(
            "No memory can be called positional: expected %d sentences of at least two tokens, found %d. Lower "
            "--type-position-sentences, or study a longer text.",
            least,
            (lengths > 1).sum(),
        )
    elif window.positions < options.type_positions:
        logger.warning(
            "Fewer than %d sentences have %d tokens, so firing is compared over the first %d positions only.",
            least,
            options.type_positions,
            window.positions,
        )
    return window


def _memories(study: Study) -> Iterator[Memories]:
    """The searched memories, layer by layer."""
    table = pq.read_table(study.path("memories.parquet"), columns=["layer", "memory", "maximum"])
    layers, numbers, maximum = (table[name].to_numpy() for name in table.column_names)
    effects = _effects(study)
    for layer in np.unique(layers).tolist():
        here = np.flatnonzero(layers == layer)
        here = here[np.argsort(numbers[here])]
        block = Block(layer, numbers[here].astype(np.int64))
        shares = [effects.get((layer, memory), np.nan) for memory in block.memories.tolist()]
        yield Memories(block, maximum[here] <= 0, np.array(shares))


def _effects(study: Study) -> dict[tuple[int, int], float]:
    """The share of each memory's effect that runs through the final norm; empty before the stage `effects`."""
    if not study.has("effects"):
        logger.warning(
            "Entropy memories are not looked for: they are defined by their effect through the final norm, and %s has no "
            "effects. Run `ffscope effects` first.",
            study.folder,
        )
        return {}
    table = pq.read_table(study.path("effects.parquet"), columns=["layer", "memory", "direct_size", "norm_size"])
    direct, norm = (np.array(table[name].to_pylist(), dtype=np.float64) for name in ("direct_size", "norm_size"))
    keys = zip(table["layer"].to_pylist(), table["memory"].to_pylist(), strict=True)
    return dict(zip(keys, through_norm(direct, norm).tolist(), strict=True))


def _grouped(memories: Iterator[Memories], most: int) -> list[list[Memories]]:
    """Consecutive blocks in groups of at most `most` memories; a larger block is split."""
    groups: list[list[Memories]] = []
    room = 0
    for part in (part for each in memories for part in _split(each, most)):
        size = -(-len(part.dead) // 8) * 8  # in whole bytes
        if size > room:
            groups.append([])
            room = most
        groups[-1].append(part)
        room -= size
    return groups


def _split(memories: Memories, most: int) -> Iterator[Memories]:
    size = most // 8 * 8
    for start in range(0, len(memories.dead), size):
        part = slice(start, start + size)
        block = Block(memories.block.layer, memories.block.memories[part])
        yield Memories(block, memories.dead[part], memories.through_norm[part])
