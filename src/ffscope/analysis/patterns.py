"""Finds what the triggers of each memory have in common: shallow patterns (surface forms) and semantic ones (topics)."""

import logging
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ffscope.axes import Array
from ffscope.engines.base import Engine
from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.models.encoder import Encoder, check_folder, encoder_available, find_encoder
from ffscope.options.option_set import Options
from ffscope.patterns.background import Background
from ffscope.patterns.bits import set_bits
from ffscope.patterns.candidates import Rates
from ffscope.patterns.describe import describe, describe_set
from ffscope.patterns.embed_words import encoder_vectors, model_vectors
from ffscope.patterns.forms import SHALLOW
from ffscope.patterns.near_misses import NearMisses
from ffscope.patterns.pattern import LEAST, MACHINE, MOST, TRIGGERS, Pattern
from ffscope.patterns.prefixes import Prefixes, read_prefixes, sample_sentences
from ffscope.patterns.semantic import Layer
from ffscope.patterns.senses import WordSet, without_pieces
from ffscope.patterns.shallow import Shared, Triggers, find_shared
from ffscope.patterns.table import TABLE, write_patterns
from ffscope.patterns.word_vectors import WordVectors, no_vectors
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.stages.patterns import PatternOptions
from ffscope.stages.stage import Work
from ffscope.study.folder import Study

logger = logging.getLogger(__name__)

_MOST_TRIGGERS = 60  # per memory: one bit for each in an integer
_SELECTIVE = 0.5  # a memory that fires on at most this share of the prefixes with a form fires only in some contexts
_BLOCK = 4096  # memories processed at once: a layer of a mixture of experts may have 100,000


def find_patterns(
    study: Study,
    engine: Engine,
    *,
    encoder: str | None = None,
    triggers: int | None = None,
    device: str = "auto",
    progress: ProgressCallback = no_progress,
) -> None:
    """Find the patterns in the top triggers (25) of every memory: patterns.parquet, with `machine` as annotator.

    Prefixes are embedded by the encoder that is named, else by an installed one, else by the model's middle layer
    (`encoder="model"`). Patterns found with another encoder or another number of triggers are replaced.
    """
    study.need("triggers")
    check_pattern_options(encoder, triggers)
    earlier, finished = study.manifest["stages"].get("patterns", {}), _finished_entry(study)
    if is_done(study, encoder, triggers):
        return
    encoder = requested_encoder(study, encoder)
    loaded = None if encoder == "model" else find_encoder(encoder, device)
    entry: dict[str, Any] = {
        "encoder": _source(loaded, engine),
        "encoder_asked": encoder,
        "encoder_fingerprint": loaded and loaded.fingerprint,
        "pattern_triggers": triggers or earlier.get("pattern_triggers", TRIGGERS),
    }
    if entry.items() <= finished.items():
        return
    if entry["encoder"] is None:
        logger.warning(
            "No encoder is installed and no model was passed: semantic patterns are found by words and documents alone."
        )
    start = time.perf_counter()
    table = pq.read_table(study.path("triggers.parquet"), filters=[("rank", "<=", entry["pattern_triggers"])])
    prefixes, sample = read_prefixes(study, table, sample_sentences(study, study.settings["seed"]), progress=progress)
    meanings = Background(study, prefixes, sample)
    meanings.embed(_word_vectors(loaded, engine, meanings, entry, progress))
    patterns, counts = _find_all(study, table, meanings, progress)
    write_patterns(study, MACHINE, patterns)
    study.finish("patterns", {}, seconds=time.perf_counter() - start, **entry, **counts)
    meanings.drop()


def is_done(study: Study, encoder: str | None, triggers: int | None) -> bool:
    """Whether patterns were found with these options. Always False for a named encoder, which must be loaded to find out."""
    finished = _finished_entry(study)
    return bool(finished) and encoder is None and triggers in (None, finished["pattern_triggers"])


def requested_encoder(study: Study, encoder: str | None) -> str | None:
    """The encoder that is named now, or was named for the existing patterns."""
    return encoder or study.manifest["stages"].get("patterns", {}).get("encoder_asked")


def _finished_entry(study: Study) -> dict[str, Any]:
    """The entry of the finished stage in study.json; empty if its table cannot be read."""
    if not study.has("patterns"):
        return {}
    try:
        pq.read_schema(study.path(TABLE))
    except (pa.ArrowInvalid, OSError):
        logger.warning(
            "%s cannot be read. It is written again, without the labels of language models.", study.path(TABLE)
        )
        study.path(TABLE).unlink()
        return {}
    return study.manifest["stages"]["patterns"]


def check_pattern_options(encoder: str | None, triggers: int | None) -> None:
    """Raise for an invalid number of triggers or encoder."""
    if triggers is not None and not LEAST <= triggers <= _MOST_TRIGGERS:
        raise InputError(f"pattern_triggers is {triggers}. Expected {LEAST} to {_MOST_TRIGGERS}.")
    if encoder not in (None, "model"):
        check_folder(str(encoder))


def _word_vectors(
    encoder: Encoder | None,
    engine: Engine,
    meanings: Background,
    entry: dict[str, Any],
    progress: ProgressCallback,
) -> WordVectors:
    saved = meanings.saved(entry)
    if encoder is not None:
        return encoder_vectors(engine, encoder, meanings.prefixes, saved, progress)
    if not engine.has_model:
        return no_vectors(meanings.prefixes.sentences.lexicon)
    return model_vectors(engine, engine.info, meanings.study, meanings.sample, seed=meanings.seed)


def _source(encoder: Encoder | None, engine: Engine) -> str | None:
    """The name of the encoder, for study.json."""
    if encoder is not None:
        return encoder.name
    return f"words by layer {engine.info.layers // 2} of the studied model" if engine.has_model else None


def _find_all(
    study: Study, table: pa.Table, meanings: Background, progress: ProgressCallback
) -> tuple[dict[Memory, list[Pattern]], dict[str, Any]]:
    """The patterns of every memory that has any, and how many prefixes they cover."""
    patterns: dict[Memory, list[Pattern]] = {}
    covered, finder = 0, _Finder(study, table, meanings)
    blocks = np.unique(np.stack([finder.layer, finder.memory // _BLOCK]), axis=1).T.tolist()
    for done, (layer, block) in enumerate(blocks):
        progress(Progress("patterns", done, len(blocks), unit="blocks of memories"))
        for memory, best in finder.find(layer, block):
            patterns[memory] = best
            covered += len({rank for pattern in best for rank in pattern.covers})
    progress(Progress("patterns", len(blocks), len(blocks), unit="blocks of memories"))
    return patterns, {"prefixes": len(table), "covered": covered}


class _Finder:
    """Finds the patterns of memories, some of a layer at a time."""

    def __init__(self, study: Study, table: pa.Table, meanings: Background) -> None:
        self.meanings = meanings
        self.layer, self.memory, self.rank = (table[name].to_numpy() for name in ("layer", "memory", "rank"))
        self.tokens = pq.read_table(study.path("vocabulary.parquet"))["text"].to_pylist()
        self.rates, self.sample = Rates(meanings.sample, SHALLOW), meanings.sample_statistics()
        self.senses = meanings.senses()
        complete = len(meanings.embedded_sample) == len(meanings.sample)
        self.near_misses = NearMisses(study, table, self.sample.conditional, complete=complete)

    def find(self, layer: int, block: int) -> Iterator[tuple[Memory, list[Pattern]]]:
        """The patterns of every memory of a block that has any, best first."""
        here = np.flatnonzero((self.layer == layer) & (self.memory // _BLOCK == block))
        first = block * _BLOCK
        triggers = Triggers(self.meanings.prefixes.take(here), self.memory[here] - first, self.rank[here] - 1)
        subjects = Layer(triggers, self.meanings.of(triggers.prefixes), self.sample)
        shared = find_shared(triggers, self.rates, self.sample.conditional)
        sets = self._sets(triggers, shared)
        semantic = subjects.find(shared, sets)
        for index in sorted(shared.keys() | semantic.keys() | sets.keys()):
            memory, own_sets, forms = Memory(layer, first + index), sets.get(index, []), shared.get(index, [])
            patterns = [
                *(_set_pattern(word_set, forms, triggers) for word_set in own_sets),
                *(
                    self._shallow_pattern(form, triggers.prefixes, subjects.rows[index], memory)
                    for form in without_pieces(forms, own_sets)
                ),
                *semantic.get(index, []),
            ]
            if patterns:
                yield memory, sorted(patterns, key=_order)[:MOST]

    def _sets(self, triggers: Triggers, shared: dict[int, list[Shared]]) -> dict[int, list[WordSet]]:
        """The sets of related last words of each memory, without those that a coarse form explains."""
        sets = {}
        for memory, own in self.senses.find(triggers).items():
            forms = shared.get(memory, [])
            sets[memory] = [
                word_set for word_set in own if not self.senses.is_explained(word_set, forms, self.sample.conditional)
            ]
        return sets

    def _shallow_pattern(self, form: Shared, prefixes: Prefixes, rows: Array, memory: Memory) -> Pattern:
        bits = set_bits(form.bits)
        description = describe(form, prefixes, [int(rows[bit]) for bit in bits], self.tokens)
        share = self.near_misses.firing_share(memory, form)
        if share is not None and share <= _SELECTIVE and not form.often:
            description += ", in some contexts"
        return Pattern("shallow", description, tuple(bit + 1 for bit in bits), form.p_value, share)


def _set_pattern(word_set: WordSet, forms: list[Shared], triggers: Triggers) -> Pattern:
    """A set of last words; the lowest p-value of its words counts, if it is lower."""
    lexicon = triggers.prefixes.sentences.lexicon
    inside = [form.p_value for form in forms if form.form.family == "words" and not form.bits & ~word_set.bits]
    covers = tuple(bit + 1 for bit in set_bits(word_set.bits))
    return Pattern("semantic", describe_set(word_set.words, lexicon), covers, min([word_set.p_value, *inside]))


def _order(pattern: Pattern) -> tuple[float, int]:
    """By p-value, then by descending support."""
    return pattern.p_value or 0.0, -pattern.support


def run(work: Work) -> None:
    """Run the stage."""
    options = work.options(PatternOptions)
    how = {
        "encoder": options.encoder,
        "triggers": options.pattern_triggers,
        "device": work.engine.device or work.device,
    }
    find_patterns(work.study, work.engine, **how, progress=work.progress)  # type: ignore[arg-type]


def needs_model(study: Study, options: Options) -> bool:
    """Whether the studied model has to embed prefixes: not if an encoder does, or the stage is done."""
    how = options(PatternOptions)
    return not is_done(study, how.encoder, how.pattern_triggers) and not encoder_available(
        requested_encoder(study, how.encoder)
    )


def check_options(options: Options) -> None:
    """Raise for invalid options."""
    check_pattern_options(options(PatternOptions).encoder, options(PatternOptions).pattern_triggers)
