"""The prefixes of a study as words: the triggers of memories, and a sample of the corpus to compare them with."""

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
_SAMPLE = 20_000  # sentences of the corpus: some 600,000 prefixes
_COLUMNS = ["sentence", "document", "text", "tokens", "ends"]


@dataclass(frozen=True)
class Sentences:
    """Sentences as words: `words[starts[row] : starts[row + 1]]` are numbers in the lexicon."""

    lexicon: Lexicon
    number: Array  # the study's sentence numbers, ascending
    document: Array
    words: Array
    starts: Array

    def row(self, numbers: Array) -> Array:
        return np.searchsorted(self.number, numbers)


@dataclass(frozen=True)
class Prefixes:
    """Prefixes of some sentences, one per row. The last word is cut where the prefix ends; `part` marks incomplete words."""

    sentences: Sentences
    row: Array  # of the sentence
    position: Array  # of the last token
    token: Array  # the last token
    last: Array  # index of the last word in its sentence
    word: Array  # the last word
    part: Array
    piece: Array  # index of the last token among the tokens of the last word

    def __len__(self) -> int:
        return len(self.row)

    def take(self, which: Array) -> "Prefixes":
        """The prefixes at these rows, in this order."""
        columns = (self.row, self.position, self.token, self.last, self.word, self.part, self.piece)
        return Prefixes(self.sentences, *(column[which] for column in columns))

    def before(self, distance: int) -> Array:
        """The word this many places before the last; -1 if there is none."""
        exists = self.last >= distance
        place = self.sentences.starts[self.row] + self.last - distance
        return np.where(exists, self.sentences.words[np.where(exists, place, 0)], -1)

    def words_before_last(self) -> tuple[Array, Array]:
        """Every word before the last: the row of its prefix, and its index in `sentences.words`."""
        owner = np.repeat(np.arange(len(self)), self.last)
        first = np.repeat(np.cumsum(self.last) - self.last, self.last)
        place = np.repeat(self.sentences.starts[self.row], self.last) + np.arange(len(owner)) - first
        return owner, place

    @property
    def content(self) -> Array:
        """The number of content words of each prefix."""
        is_content = self.sentences.lexicon.content
        before = np.concatenate([[0], np.cumsum(is_content[self.sentences.words])])
        first = self.sentences.starts[self.row]
        return before[first + self.last] - before[first] + (is_content[self.word] & ~self.part)

    @property
    def length(self) -> Array:
        """The number of words of each prefix."""
        return self.last + 1


def sample_sentences(study: Study, seed: int) -> Array:
    """The numbers of the sentences that represent the corpus: all that were searched, or a random sample of them."""
    table = pq.read_table(study.path("sentences.parquet"), columns=["sentence"], filters=[("held_out", "==", False)])
    searched = table["sentence"].to_numpy()[: study.manifest["stages"]["triggers"].get("sentences")]
    if len(searched) <= _SAMPLE:
        return searched
    return np.sort(np.random.default_rng([seed, 2]).choice(searched, _SAMPLE, replace=False))


def read_prefixes(
    study: Study, triggers: pa.Table, sample: Array, *, progress: ProgressCallback = no_progress
) -> tuple[Prefixes, Prefixes]:
    """The prefixes of triggers, one per row of `triggers`, and all prefixes of the sampled sentences."""
    wanted = _by_sentence(triggers["sentence"].to_numpy(), triggers["position"].to_numpy())
    reader = _Reader(study, set(sample.tolist()), wanted)
    for done, total in reader.read():
        progress(Progress("patterns: reading", done, total))
    triggering, background = reader.prefixes(study.settings["language"])
    key = triggers["sentence"].to_numpy().astype(np.int64) << 32 | triggers["position"].to_numpy()
    trigger_key = triggering.sentences.number[triggering.row].astype(np.int64) << 32 | triggering.position
    return triggering.take(np.searchsorted(trigger_key, key)), background


def _by_sentence(sentences: Array, positions: Array) -> dict[int, list[int]]:
    """The wanted positions of each sentence, ascending."""
    pairs = np.unique(sentences.astype(np.int64) << 32 | positions)
    positions_by_sentence: dict[int, list[int]] = {}
    for sentence, position in zip((pairs >> 32).tolist(), (pairs & 0xFFFFFFFF).tolist(), strict=True):
        positions_by_sentence.setdefault(sentence, []).append(position)
    return positions_by_sentence


class _Reader:
    """Reads the sentences of a study once and keeps the wanted ones, as numbers."""

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
                selected = batch.filter(pc.is_in(batch["sentence"], value_set=chosen))
                for row in selected.to_pylist():
                    self._add_sentence(row)
                if len(selected):  # held-out sentences come last
                    yield len(self.numbers), len(chosen)

    def _add_sentence(self, row: dict[str, Any]) -> None:
        text, ends = row["text"], row["ends"]
        if not ends:  # the tokenizer gives no offsets: use the spellings of the tokens
            pieces = [self._spelling(token).replace("␣", " ") for token in row["tokens"]]
            text, ends = "".join(pieces), np.cumsum([len(piece) for piece in pieces]).tolist()
        words, starts, stops = words_of(text)
        number = len(self.numbers)
        self.numbers.append(row["sentence"])
        self.documents.append(row["document"])
        self.words.append([self.lexicon.number(word) for word in words])
        if row["sentence"] in self.sample:
            self.background.append(
                self._prefixes_at(number, text, starts, stops, row["tokens"], ends, range(len(ends)))
            )
        if row["sentence"] in self.wanted:
            positions = self.wanted[row["sentence"]]
            self.triggering.append(self._prefixes_at(number, text, starts, stops, row["tokens"], ends, positions))

    def _spelling(self, token: int) -> str:
        return self.spelt[token] if token < len(self.spelt) else f"#{token}"

    def _prefixes_at(
        self,
        number: int,
        text: str,
        starts: list[int],
        stops: list[int],
        tokens: list[int],
        ends: list[int],
        positions: Any,
    ) -> tuple[Any, ...]:
        """The prefixes of one sentence that end at these positions."""
        chosen = np.fromiter(positions, np.int64)
        end = np.asarray(ends)[chosen]
        started = np.searchsorted(starts, end)  # number of words that have started; 0 if the prefix is only white space
        last = np.maximum(started - 1, 0)
        words = np.where(started > 0, np.array(self.words[number] or [0])[last], 0)
        part, piece = np.zeros(len(end), dtype=bool), np.zeros(len(end), dtype=np.int64)
        if starts:
            first = np.searchsorted(ends, np.asarray(starts)[last], side="right")  # the word's first token
            last_token = np.searchsorted(ends, np.asarray(stops)[last]).clip(max=len(ends) - 1)
            inside = end <= np.asarray(ends)[last_token]  # white space is no piece of the word before it
            piece = np.where(inside, np.maximum(chosen - first, 0), 0)
            incomplete = (end < np.asarray(stops)[last]) & (started > 0)
            for i in np.flatnonzero(incomplete):
                words[i] = self.lexicon.number(text[starts[last[i]] : end[i]])
                part[i] = text[end[i]].isalnum()  # "Earth" of "Earth's" is a word, "1" of "1,200" a number
        return np.full(len(end), number), chosen, np.asarray(tokens)[chosen], last, words, part, piece

    def prefixes(self, language: str) -> tuple[Prefixes, Prefixes]:
        """The prefixes of triggers, in the order of their sentences, and those of the sample."""
        flat = np.array([word for sentence in self.words for word in sentence], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum([len(sentence) for sentence in self.words])]).astype(np.int64)
        self.lexicon.analyse(language, np.bincount(flat, minlength=len(self.lexicon.numbers)))
        sentences = Sentences(self.lexicon, np.array(self.numbers), np.array(self.documents), flat, starts)
        return _concatenated(sentences, self.triggering), _concatenated(sentences, self.background)


def _concatenated(sentences: Sentences, pieces: list[tuple[Any, ...]]) -> Prefixes:
    columns = [np.concatenate(column) for column in zip(*pieces, strict=True)] or [np.zeros(0, dtype=np.int64)] * 7
    return Prefixes(sentences, *columns)
