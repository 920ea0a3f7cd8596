"""The prefixes of a study as words: those that trigger memories, and a sample of the text at large to hold them against."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ffscope.axes import Array
from ffscope.patterns.words import Lexicon, words_of
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.study.folder import Study

_ROWS = 2048
_SAMPLE = 20_000  # sentences of the text at large: some 600,000 prefixes
_COLUMNS = ["sentence", "document", "text", "tokens", "ends"]


@dataclass(frozen=True)
class Sentences:
    """Sentences as words: `words[starts[row] : starts[row + 1]]` are numbers in the lexicon."""

    lexicon: Lexicon
    number: Array  # as the study counts them, rising
    document: Array
    words: Array
    starts: Array

    def row(self, numbers: Array) -> Array:
        return np.searchsorted(self.number, numbers)


@dataclass(frozen=True)
class Prefixes:
    """Prefixes of some sentences, one to a row. The last word is as the prefix has it: `part` says that it goes on."""

    sentences: Sentences
    row: Array  # of the sentence
    position: Array  # of the last token
    token: Array  # the last
    last: Array  # the place of the last word in its sentence
    word: Array  # the last
    part: Array

    def __len__(self) -> int:
        return len(self.row)

    def take(self, which: Array) -> "Prefixes":
        """Some of them, in another order."""
        columns = (self.row, self.position, self.token, self.last, self.word, self.part)
        return Prefixes(self.sentences, *(column[which] for column in columns))

    def before(self, distance: int) -> Array:
        """The word so many places before the last; -1 where the sentence begins later."""
        there = self.last >= distance
        place = self.sentences.starts[self.row] + self.last - distance
        return np.where(there, self.sentences.words[np.where(there, place, 0)], -1)

    def spread(self) -> tuple[Array, Array]:
        """Every whole word before the last, and which prefix it belongs to."""
        owner = np.repeat(np.arange(len(self)), self.last)
        first = np.repeat(np.cumsum(self.last) - self.last, self.last)
        place = np.repeat(self.sentences.starts[self.row], self.last) + np.arange(len(owner)) - first
        return owner, place

    @property
    def content(self) -> Array:
        """How many content words each has."""
        tells = self.sentences.lexicon.content
        before = np.concatenate([[0], np.cumsum(tells[self.sentences.words])])
        first = self.sentences.starts[self.row]
        return before[first + self.last] - before[first] + (tells[self.word] & ~self.part)

    @property
    def length(self) -> Array:
        """How many words each has."""
        return self.last + 1


def sampled(study: Study, seed: int) -> Array:
    """The numbers of the sentences that stand for the text at large: all that were searched, or as many by lot."""
    table = pq.read_table(study.path("sentences.parquet"), columns=["sentence"], filters=[("held_out", "==", False)])
    searched = table["sentence"].to_numpy()[: study.manifest["stages"]["triggers"].get("sentences")]
    if len(searched) <= _SAMPLE:
        return searched
    return np.sort(np.random.default_rng([seed, 2]).choice(searched, _SAMPLE, replace=False))


def read_prefixes(
    study: Study, triggers: pa.Table, sample: Array, *, progress: ProgressCallback = no_progress
) -> tuple[Prefixes, Prefixes]:
    """The prefixes of triggers, one for every row, and all prefixes of the sampled sentences."""
    wanted = _by_sentence(triggers["sentence"].to_numpy(), triggers["position"].to_numpy())
    reader = _Reader(study, set(sample.tolist()), wanted)
    for done, total in reader.read():
        progress(Progress("patterns: reading", done, total))
    triggering, background = reader.prefixes(study.settings["language"])
    key = triggers["sentence"].to_numpy().astype(np.int64) << 32 | triggers["position"].to_numpy()
    held = triggering.sentences.number[triggering.row].astype(np.int64) << 32 | triggering.position
    return triggering.take(np.searchsorted(held, key)), background


def _by_sentence(sentences: Array, positions: Array) -> dict[int, list[int]]:
    """The positions that are wanted of each sentence, rising."""
    pairs = np.unique(sentences.astype(np.int64) << 32 | positions)
    found: dict[int, list[int]] = {}
    for sentence, position in zip((pairs >> 32).tolist(), (pairs & 0xFFFFFFFF).tolist(), strict=True):
        found.setdefault(sentence, []).append(position)
    return found


class _Reader:
    """Goes once through the sentences of a study and keeps what is wanted of them, as numbers."""

    def __init__(self, study: Study, sample: set[int], wanted: dict[int, list[int]]) -> None:
        self.file, self.sample, self.wanted = study.path("sentences.parquet"), sample, wanted
        self.spelt = pq.read_table(study.path("vocabulary.parquet"))["text"].to_pylist()
        self.lexicon = Lexicon()
        self.numbers: list[int] = []
        self.documents: list[int] = []
        self.words: list[list[int]] = []
        self.triggering: list[tuple[Any, ...]] = []
        self.background: list[tuple[Any, ...]] = []

    def read(self) -> Iterator[tuple[int, int]]:
        chosen = pa.array(sorted(self.sample | self.wanted.keys()), pa.int32())
        with pq.ParquetFile(self.file) as file:
            for batch in file.iter_batches(_ROWS, columns=_COLUMNS):
                some = batch.filter(pc.is_in(batch["sentence"], value_set=chosen))
                for row in some.to_pylist():
                    self._keep(row)
                if len(some):  # held-out sentences stand last
                    yield len(self.numbers), len(chosen)

    def _keep(self, row: dict[str, Any]) -> None:
        text, ends = row["text"], row["ends"]
        if not ends:  # the tokenizer does not say where its tokens are: as they are shown, then
            pieces = [self._spelling(token).replace("␣", " ") for token in row["tokens"]]
            text, ends = "".join(pieces), np.cumsum([len(piece) for piece in pieces]).tolist()
        words, starts, stops = words_of(text)
        number = len(self.numbers)
        self.numbers.append(row["sentence"])
        self.documents.append(row["document"])
        self.words.append([self.lexicon.number(word) for word in words])
        if row["sentence"] in self.sample:
            self.background.append(self._cut(number, text, starts, stops, row["tokens"], ends, range(len(ends))))
        if row["sentence"] in self.wanted:
            positions = self.wanted[row["sentence"]]
            self.triggering.append(self._cut(number, text, starts, stops, row["tokens"], ends, positions))

    def _spelling(self, token: int) -> str:
        return self.spelt[token] if token < len(self.spelt) else f"#{token}"

    def _cut(
        self,
        number: int,
        text: str,
        starts: list[int],
        stops: list[int],
        tokens: list[int],
        ends: list[int],
        positions: Any,
    ) -> tuple[Any, ...]:
        """The prefixes of one sentence that end at some positions."""
        chosen = np.fromiter(positions, np.int64)
        end = np.asarray(ends)[chosen]
        begun = np.searchsorted(starts, end)  # words; none where the prefix is white space alone
        last = np.maximum(begun - 1, 0)
        words = np.where(begun > 0, np.array(self.words[number] or [0])[last], 0)
        part = np.zeros(len(end), dtype=bool)
        if starts:
            cut = (end < np.asarray(stops)[last]) & (begun > 0)
            for i in np.flatnonzero(cut):
                words[i] = self.lexicon.number(text[starts[last[i]] : end[i]])
                part[i] = text[end[i]].isalnum()  # "Earth" of "Earth's" is a word, "1" of "1,200" a number
        return np.full(len(end), number), chosen, np.asarray(tokens)[chosen], last, words, part

    def prefixes(self, language: str) -> tuple[Prefixes, Prefixes]:
        """What was kept: the prefixes that were wanted, in the order of their sentences, and those of the sample."""
        flat = np.array([word for sentence in self.words for word in sentence], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum([len(sentence) for sentence in self.words])]).astype(np.int64)
        self.lexicon.close(language, np.bincount(flat, minlength=len(self.lexicon.numbers)))
        sentences = Sentences(self.lexicon, np.array(self.numbers), np.array(self.documents), flat, starts)
        return _joined(sentences, self.triggering), _joined(sentences, self.background)


def _joined(sentences: Sentences, pieces: list[tuple[Any, ...]]) -> Prefixes:
    columns = [np.concatenate(column) for column in zip(*pieces, strict=True)] or [np.zeros(0, dtype=np.int64)] * 6
    return Prefixes(sentences, *columns)
