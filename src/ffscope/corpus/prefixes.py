"""The searched prefixes, numbered across the sentences of a study: read in chunks, and located by number."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ffscope.axes import Array
from ffscope.corpus.batches import Chunk
from ffscope.corpus.reading import Reading, batches_of

_ROWS = 4096


class Places(NamedTuple):
    """Prefixes by sentence and position, with the token that follows each."""

    sentences: Array
    positions: Array
    next_tokens: Array


def chunks(sentences: Reading | Path, *, first: int | None = None) -> Iterator[Chunk]:
    """The sentences that are not held out, in order: all, or the `first` ones."""
    remaining = first
    for chunk, _ in _read(sentences, []):
        if remaining is None:
            yield chunk
        elif remaining <= 0:
            return
        else:
            yield _first_sentences(chunk, remaining)
            remaining -= len(chunk.sentences)


def _first_sentences(chunk: Chunk, count: int) -> Chunk:
    tokens = chunk.tokens[: chunk.lengths[:count].sum()]
    return Chunk(chunk.sentences[:count], chunk.first_prefixes[:count], chunk.lengths[:count], tokens)


def locate(sentences: Path, prefixes: Array) -> Places:
    """The places of prefixes, whose numbers may be in any order."""
    wanted, inverse = np.unique(prefixes, return_inverse=True)
    places = Places(*(np.full(len(wanted), -1, dtype=np.int32) for _ in Places._fields))
    for chunk, following in _read(sentences, ["next_token"]):
        if not len(chunk.sentences):
            continue
        first, end = chunk.first_prefixes[0], chunk.first_prefixes[-1] + chunk.lengths[-1]
        here = slice(*np.searchsorted(wanted, [first, end]))
        row = np.searchsorted(chunk.first_prefixes, wanted[here], side="right") - 1
        position = wanted[here] - chunk.first_prefixes[row]
        last = position + 1 == chunk.lengths[row]
        after = np.minimum(wanted[here] - first + 1, len(chunk.tokens) - 1)
        places.sentences[here] = chunk.sentences[row]
        places.positions[here] = position
        places.next_tokens[here] = np.where(last, following[row], chunk.tokens[after])
    return Places(*(column[inverse] for column in places))


def held_out(sentences: Path) -> tuple[Array, Array]:
    """The numbers of the held-out sentences, and their lengths in tokens."""
    table = pq.read_table(sentences, columns=["sentence", "tokens"], filters=[("held_out", "==", True)])
    return table["sentence"].to_numpy(), pc.list_value_length(table["tokens"]).to_numpy().astype(np.int64)


def tokens_of(sentences: Path, numbers: Array) -> dict[int, Array]:
    """The tokens of some sentences."""
    wanted = pa.array(np.unique(numbers))
    tokens_by_sentence: dict[int, Array] = {}
    with pq.ParquetFile(sentences) as file:
        for batch in file.iter_batches(_ROWS, columns=["sentence", "tokens"]):
            selected = batch.filter(pc.is_in(batch["sentence"], value_set=wanted))
            rows = zip(selected["sentence"].to_pylist(), selected["tokens"], strict=True)
            tokens_by_sentence.update((number, tokens.values.to_numpy()) for number, tokens in rows)
    return tokens_by_sentence


def _read(sentences: Reading | Path, more: list[str]) -> Iterator[tuple[Chunk, Array]]:
    """Chunks, each with the values of an extra column if `more` names one."""
    number = 0
    columns = ["sentence", "tokens", "held_out", *more]
    batches = sentences.batches(columns) if isinstance(sentences, Reading) else batches_of(sentences, columns)
    for batch in _of_equal_size(batches):
        batch = batch.filter(~batch["held_out"].to_numpy(zero_copy_only=False))
        lengths = np.diff(batch["tokens"].offsets.to_numpy()).astype(np.int64)
        firsts = number + np.cumsum(lengths) - lengths
        number += int(lengths.sum())
        tokens = batch["tokens"].flatten().to_numpy()
        numbers = batch["sentence"].to_numpy()
        yield Chunk(numbers, firsts, lengths, tokens), batch[more[0]].to_numpy() if more else numbers


def _of_equal_size(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, _ROWS in every batch but the last: chunks must not depend on the files that the rows come from."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        while count + len(batch) >= _ROWS:
            yield pa.concat_batches([*waiting, batch.slice(0, _ROWS - count)])
            batch = batch.slice(_ROWS - count)
            waiting, count = [], 0
        waiting.append(batch)
        count += len(batch)
    if count:
        yield pa.concat_batches(waiting)


def prefix_text(sentence: Mapping[str, Any], position: int, spell: Callable[[Sequence[int]], str]) -> str:
    """The text of a sentence up to and including a position; `spell` decodes tokens if the tokenizer gave no offsets."""
    ends = sentence["ends"]
    return sentence["text"][: ends[position]] if ends else spell(sentence["tokens"][: position + 1])
