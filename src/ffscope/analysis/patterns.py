"""What the triggers of every memory share: surface forms, and meaning beyond them."""

import json
import shutil
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ffscope.corpus.batches import Array
from ffscope.errors import InputError
from ffscope.memory import Memory
from ffscope.models.encoder import Encoder, check_folder, find_encoder
from ffscope.models.memory_model import MemoryModel
from ffscope.patterns.about import Words, read_documents
from ffscope.patterns.candidates import SHALLOW, Rates
from ffscope.patterns.describe import describe
from ffscope.patterns.given import Given
from ffscope.patterns.meaning import Chance, unit
from ffscope.patterns.prefixes import Prefixes, read_prefixes, sampled
from ffscope.patterns.record import LEAST, MACHINE, MOST, TRIGGERS, Pattern
from ffscope.patterns.semantic import Layer, Sample, set_bits
from ffscope.patterns.shallow import Shared, Triggers, find_shared
from ffscope.patterns.topics import topics_of
from ffscope.progress import Progress, Tell, nobody
from ffscope.running.vectors import EncoderReader, ModelReader, Reader, Vectors, learn, read_vectors
from ffscope.schemas import SCHEMAS
from ffscope.study import Study

_TABLE, _FOLDER, _NOTE = "patterns.parquet", ".patterns", "begun.json"
_WIDEST = 60  # triggers of a memory: a bit for each
_READ = 200_000  # prefixes of the sample whose meaning is read
_SAID = 2  # content words that a prefix must have, to mean something: shorter ones are alike for having said little
_SENTENCES = 4096  # whose vectors are put by at once


def find_patterns(
    study: Study,
    model: MemoryModel | None,
    *,
    encoder: str | None = None,
    triggers: int | None = None,
    device: str = "auto",
    progress: Tell = nobody,
) -> None:
    """Label what the first triggers (25) of every memory share: patterns.parquet, with the machine as annotator.

    Meaning is read by the encoder that is named, or else one that is installed, or else by the model's middle layer, which
    `encoder="model"` asks for. What was found by another encoder, or in more or fewer triggers, is found anew.
    """
    study.need("triggers")
    check_asked(encoder, triggers)
    held = study.manifest["stages"].get("patterns", {}) if study.has("patterns") else {}
    if held and encoder is None and triggers in (None, held["pattern_triggers"]):
        return
    found = None if encoder == "model" else find_encoder(encoder, device)
    asked: dict[str, Any] = {"encoder": _source(found, model), "pattern_triggers": triggers or TRIGGERS}
    if asked.items() <= held.items():
        return
    start = time.perf_counter()
    table = pq.read_table(study.path("triggers.parquet"), filters=[("rank", "<=", asked["pattern_triggers"])])
    prefixes, sample = read_prefixes(study, table, sampled(study, study.settings["seed"]), progress=progress)
    reading = _Reading(study, prefixes, sample)
    reading.read(_reader(study, found, model, prefixes), asked, progress)
    rows, counts = _found(study, table, reading, progress)
    _write(study, rows)
    study.finish("patterns", {}, seconds=time.perf_counter() - start, **asked, **counts)
    shutil.rmtree(study.path(_FOLDER), ignore_errors=True)


def check_asked(encoder: str | None, triggers: int | None) -> None:
    """Raise where patterns cannot be found in this way."""
    if triggers is not None and not LEAST <= triggers <= _WIDEST:
        raise InputError(f"pattern_triggers is {triggers}. Expected {LEAST} to {_WIDEST}.")
    if encoder not in (None, "model"):
        check_folder(str(encoder))


def _reader(study: Study, encoder: Encoder | None, model: MemoryModel | None, prefixes: Prefixes) -> Reader | None:
    if encoder is not None:
        return EncoderReader(encoder, prefixes)
    return None if model is None else ModelReader(model, study, prefixes)


def _source(encoder: Encoder | None, model: MemoryModel | None) -> str | None:
    """Where vectors come from."""
    if encoder is not None:
        return encoder.name
    return None if model is None else f"layer {model.layers // 2} of the studied model"


class _Reading:
    """The prefixes of triggers and of the sample, and what they mean."""

    def __init__(self, study: Study, prefixes: Prefixes, sample: Prefixes) -> None:
        self.study, self.seed = study, study.settings["seed"]
        self.prefixes, self.sample = prefixes, sample
        lot = np.random.default_rng([self.seed, 7]).permutation(len(sample))[:_READ]
        self.drawn = sample.take(np.sort(lot))
        key = prefixes.row.astype(np.int64) << 32 | prefixes.position
        _, first, self.number = np.unique(key, return_index=True, return_inverse=True)
        self.distinct = prefixes.take(first)

    def read(self, reader: Reader | None, asked: dict[str, Any], progress: Tell) -> None:
        """Read the meaning of all of them, some sentences at a time; what is read is put by, so that a stop loses little."""
        self.both = both = _both(self.distinct, self.drawn)
        if reader is None:
            vectors = Vectors(*np.zeros((2, len(both), 1), dtype=np.float16))
        else:
            vectors = self._kept(reader, both, asked, progress)
        vectors.whole[both.content < _SAID] = 0
        count = len(self.distinct)
        whole, last = (_centred(some, both.length, count) for some in vectors)
        self.meaning = whole
        self.whole, self.last = whole[:count], last[:count]
        self.drawn_whole, self.drawn_last = whole[count:], last[count:]

    def _kept(self, reader: Reader, both: Prefixes, asked: dict[str, Any], progress: Tell) -> Vectors:
        folder = self.study.path(_FOLDER)
        note = folder / _NOTE
        wanted = json.dumps([asked, len(both)])
        if not note.is_file() or note.read_text(encoding="utf-8") != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            self.study.make_folder(_FOLDER)
            with self.study.replacing(f"{_FOLDER}/{_NOTE}") as path:
                path.write_text(wanted, encoding="utf-8")
        kept = learn(reader, both, seed=self.seed)
        whole, last = (np.zeros((len(both), kept.width), dtype=np.float16) for _ in range(2))
        rows = np.unique(both.row)
        for start in range(0, len(rows), _SENTENCES):
            progress(Progress("patterns: meaning", start, len(rows)))
            chosen = np.flatnonzero(np.isin(both.row, rows[start : start + _SENTENCES]))
            file = f"{_FOLDER}/{start:08}.npy"
            if not self.study.path(file).is_file():
                made = read_vectors(reader, kept, both.take(chosen))
                with self.study.replacing(file) as path, path.open("wb") as out:
                    np.save(out, np.stack(made))
            whole[chosen], last[chosen] = np.load(self.study.path(file))
        progress(Progress("patterns: meaning", len(rows), len(rows)))
        return Vectors(whole, last)

    def at_large(self) -> Sample:
        """What the text at large makes likely."""
        documents = read_documents(self.study)
        if self.drawn_whole.shape[1] > 1:
            groups = topics_of(self.both, self.meaning, len(documents.topic), seed=self.seed)
            documents = replace(documents, groups=groups)
        lemma = self.drawn.sentences.lexicon.lemma[self.drawn.word]
        with_whole, with_last = (np.abs(some).sum(1) > 0 for some in (self.drawn_whole, self.drawn_last))
        return Sample(
            rates=Rates(self.sample, documents.forms()),
            documents=documents,
            words=Words(self.sample),
            whole=Chance(self.drawn_whole[with_whole], self.seed),
            last=Chance(self.drawn_last[with_last], self.seed, lemma[with_last]),
            given=Given(self.drawn, self.drawn_whole, self.seed),
        )


def _both(one: Prefixes, other: Prefixes) -> Prefixes:
    names = ("row", "position", "token", "last", "word", "part")
    return Prefixes(one.sentences, *(np.concatenate([getattr(one, name), getattr(other, name)]) for name in names))


def _centred(vectors: Array, length: Array, first: int) -> Array:
    """Vectors of length 1, without what prefixes of one length have in common; the sample begins at row `first`."""
    made = vectors.astype(np.float32)
    there = np.abs(made).sum(1) > 0
    bins = np.minimum(np.log2(np.maximum(length, 1)).astype(np.int64), 6)
    for number in np.unique(bins):
        here = there & (bins == number)
        drawn = here.copy()
        drawn[:first] = False
        if drawn.any():
            made[here] -= made[drawn].mean(0)
    return unit(made)


def _found(
    study: Study, table: pa.Table, reading: _Reading, progress: Tell
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of the table, and how many prefixes are covered."""
    rates, sample = Rates(reading.sample, SHALLOW), reading.at_large()
    tokens = pq.read_table(study.path("vocabulary.parquet"))["text"].to_pylist()
    layer, memory, bit = (table[name].to_numpy() for name in ("layer", "memory", "rank"))
    rows: list[dict[str, Any]] = []
    covered, layers = 0, np.unique(layer)
    for done, number in enumerate(layers.tolist()):
        progress(Progress("patterns", done, len(layers), unit="layers"))
        here = np.flatnonzero(layer == number)
        triggers = Triggers(reading.prefixes.take(here), memory[here], bit[here] - 1)
        shared = find_shared(triggers, rates)
        distinct = reading.number[here]
        found = Layer(triggers, reading.whole[distinct], reading.last[distinct], sample)
        meanings = found.find(shared)
        for one in sorted(shared.keys() | meanings.keys()):
            shallow = [_told(form, found, one, tokens) for form in shared.get(one, [])]
            best = sorted([*shallow, *meanings.get(one, [])], key=_order)[:MOST]
            rows += [_row(Memory(number, one), i + 1, pattern) for i, pattern in enumerate(best)]
            covered += len({rank for pattern in best for rank in pattern.covers})
    progress(Progress("patterns", len(layers), len(layers), unit="layers"))
    return rows, {"prefixes": len(table), "covered": covered}


def _order(pattern: Pattern) -> tuple[float, int]:
    """The least likely first, then what covers more."""
    return pattern.p_value or 0.0, -pattern.support


def _told(form: Shared, layer: Layer, memory: int, tokens: list[str]) -> Pattern:
    bits = set_bits(form.bits)
    members = [int(layer.rows[memory, bit]) for bit in bits]
    said = describe(form, layer.triggers.prefixes, members, tokens)
    return Pattern("shallow", said, tuple(bit + 1 for bit in bits), form.p_value)


def _row(memory: Memory, number: int, pattern: Pattern) -> dict[str, Any]:
    return {
        "layer": memory.layer,
        "memory": memory.memory,
        "pattern": number,
        "kind": pattern.kind,
        "description": pattern.description,
        "covers": list(pattern.covers),
        "support": pattern.support,
        "p_value": pattern.p_value,
        "annotator": MACHINE,
        "detection": None,
    }


def _write(study: Study, rows: list[dict[str, Any]]) -> None:
    """The machine's rows, anew; those of others stay."""
    made = pa.Table.from_pylist(rows, SCHEMAS[_TABLE])
    if study.path(_TABLE).is_file():
        held = pq.read_table(study.path(_TABLE), schema=SCHEMAS[_TABLE], filters=[("annotator", "!=", MACHINE)])
        made = pa.concat_tables([made, held])
    order = [(name, "ascending") for name in ("layer", "memory", "annotator", "pattern")]
    with study.table(_TABLE) as writer:
        writer.write_table(made.sort_by(order), row_group_size=2**16)
