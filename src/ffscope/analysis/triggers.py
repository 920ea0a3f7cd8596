"""For every memory the prefixes of a study's sentences with the highest coefficients, in one pass over all layers."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from ffscope.corpus.batches import Batch, batches
from ffscope.corpus.prefixes import chunks, locate
from ffscope.errors import StudyError
from ffscope.models.memory_model import MemoryModel
from ffscope.options.search import SearchOptions
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.search import checkpoint
from ffscope.search.execute import Group, Search
from ffscope.search.histogram import ABOVE_ZERO, EDGES
from ffscope.search.time_budget import affordable
from ffscope.search.trigger_keys import EMPTY, LAST_PREFIX, coefficients_of, prefixes_of
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS

logger = logging.getLogger(__name__)

_ENOUGH_PICKED = 8192  # prefixes in a histogram before it takes only some of them
_RAREST = 1024
_ON_CPU, _ELSEWHERE = 2048, 131072  # tokens of a batch
_COEFFICIENTS = 2**30  # bytes of one layer's coefficients in a batch, at most
_PUT_BY = 2**31  # bytes of what is put by in a batch, at most: the highest coefficients, and all at the picked prefixes


def find_triggers(
    study: Study,
    model: MemoryModel,
    searching: SearchOptions,
    *,
    checkpoint_every: float = 60.0,
    progress: ProgressCallback = no_progress,
) -> None:
    """Search the study's sentences: triggers.parquet, memories.parquet, and negative_triggers.parquet if wanted.

    An interrupted search goes on from its last checkpoint, and ends with the same files as one that was not interrupted.
    """
    settings = {**_wanted(searching), "minutes": searching.minutes}
    if searching.batch_tokens:
        settings["batch_tokens"] = searching.batch_tokens
    if study.done("triggers", settings):
        checkpoint.discard(study)
        return
    stage = _Stage(study, model, searching, settings)
    if searching.minutes is not None:
        stage.save()  # what the time allows is measured once
    stage.search_all(checkpoint_every, progress)
    stage.write()
    study.finish("triggers", stage.settings, seconds=stage.seconds, tokens=stage.prefixes, **stage.total)
    checkpoint.discard(study)


class _Stage:
    """One search of a study, begun or gone on with."""

    def __init__(
        self,
        study: Study,
        model: MemoryModel,
        searching: SearchOptions,
        settings: dict[str, Any],
    ) -> None:
        self.study, self.model = study, model
        note = checkpoint.read_note(study)
        self.total = note["total"] if note and "total" in note else self._total(searching)
        self.rarity = rarity(self.total["prefixes"])
        self.done = self.sentences = self.prefixes = 0
        self.seconds = 0.0
        # A search that was begun goes on with its own batches, on whatever device.
        begun = {} if note is None else note["settings"]
        tokens = searching.batch_tokens or begun.get("batch_tokens") or batch_tokens(model, self.rarity)
        rows = begun.get("batch_sentences") or batch_rows(model)
        self.settings = {
            **settings,
            "batch_tokens": tokens,
            "batch_sentences": rows,
            "picked_one_in": self.rarity,
            "histogram_edges": EDGES,
        }
        self.search = Search(model, **_wanted(searching), rarity=self.rarity)
        if note is not None:
            self._go_on(note)

    def _total(self, searching: SearchOptions) -> dict[str, int]:
        """How many sentences and prefixes are searched."""
        everything = self.study.manifest["corpus"]["searched"]
        if everything["prefixes"] > LAST_PREFIX:
            raise StudyError(
                f"The corpus has {everything['prefixes']:,} prefixes; up to {LAST_PREFIX:,} are numbered. Use --sentences."
            )
        if searching.minutes is None:
            return everything
        text = self.study.path("sentences.parquet")
        trial = Search(self.model, **_wanted(searching))
        tokens = searching.batch_tokens or batch_tokens(self.model, 1)
        count = affordable(trial, text, seconds=60 * searching.minutes, tokens=tokens)
        if count < everything["sentences"]:
            said = "In %g minutes the first %d of %d sentences."
            logger.info(said, searching.minutes, count, everything["sentences"])
        prefixes = sum(int(chunk.lengths.sum()) for chunk in chunks(text, first=count))
        return {"sentences": count, "prefixes": prefixes}

    def _go_on(self, note: dict[str, Any]) -> None:
        corpus = self.study.manifest["corpus"]["fingerprint"]
        if note["settings"] != self.settings or note["corpus"] != corpus:
            raise StudyError(
                f"{self.study.folder} holds a search that was begun with other settings. Run it with those, or remove "
                f"{checkpoint.NAME} there to begin anew."
            )
        checkpoint.load(self.study, self.search)
        self.done, self.sentences, self.prefixes = note["batches"], note["sentences"], note["prefixes"]
        self.seconds = note["seconds"]
        logger.info("Going on after %d of %d sentences.", self.sentences, self.total["sentences"])

    def search_all(self, checkpoint_every: float, progress: ProgressCallback) -> None:
        """Run every batch that is left; leave a checkpoint now and then, and when interrupted."""
        start = saved = time.perf_counter()
        earlier, begun_at = self.seconds, self.prefixes
        with self.search.listening(), _uninterrupted() as interrupted:
            for batch in self._batches_left():
                self.search.run(batch)
                self.done += 1
                self.sentences += len(batch.sentences)
                self.prefixes += batch.tokens.size
                now = time.perf_counter()
                self.seconds = earlier + now - start
                rate = (self.prefixes - begun_at) / (now - start)
                left = (self.total["prefixes"] - self.prefixes) / rate
                progress(Progress("searching", self.sentences, self.total["sentences"], rate=rate, left=left))
                if interrupted() or now - saved > checkpoint_every:
                    self.save()
                    saved = time.perf_counter()
                if interrupted():
                    logger.warning("Stopped after %d sentences; the same command goes on from there.", self.sentences)
                    break

    def _batches_left(self) -> Iterator[Batch]:
        before = int(self.search.bos is not None)
        tokens, rows = self.settings["batch_tokens"], self.settings["batch_sentences"]
        text = chunks(self.study.path("sentences.parquet"), first=self.total["sentences"])
        made = batches(text, tokens=tokens, before=before, rows=rows)
        for number, batch in enumerate(made):
            if number >= self.done:
                yield batch

    def save(self) -> None:
        """Leave a checkpoint."""
        note = {
            "settings": self.settings,
            "total": self.total,
            "corpus": self.study.manifest["corpus"]["fingerprint"],
            "batches": self.done,
            "sentences": self.sentences,
            "prefixes": self.prefixes,
            "seconds": self.seconds,
        }
        checkpoint.save(self.study, self.search, note)

    def write(self) -> None:
        """Leave what was found in the study."""
        state = {name: held.cpu() for name, held in self.search.listener.state().items()}
        names = _names(self.search.groups)
        self._write_table("triggers.parquet", _triggers(self.study, names, state["top"]))
        if "low" in state:
            lowest = _triggers(self.study, names, state["low"])
            lowest["coefficient"] = -lowest["coefficient"]
            self._write_table("negative_triggers.parquet", lowest)
        self._write_table("memories.parquet", {**names, **_counts(self.study, state)})

    def _write_table(self, name: str, columns: dict[str, Any]) -> None:
        with self.study.table(name) as writer:
            writer.write_table(pa.Table.from_pydict(columns, SCHEMAS[name]), row_group_size=2**16)


def _wanted(searching: SearchOptions) -> dict[str, Any]:
    """What is searched and kept, without how."""
    return {name: value for name, value in asdict(searching).items() if name not in ("batch_tokens", "minutes")}


def rarity(prefixes: int) -> int:
    """One in how many prefixes goes into the histograms: all of a small corpus, one in 1,024 of a very large one."""
    return min(_RAREST, 2 ** max(0, (prefixes // _ENOUGH_PICKED).bit_length() - 1))


def batch_tokens(model: MemoryModel, rarity: int) -> int:
    """How many tokens a batch has by default."""
    picked = _PUT_BY * rarity // (4 * sum(model.memories))
    if model.device.type == "cpu":
        return max(64, min(_ON_CPU, picked))
    return max(64, min(_ELSEWHERE, picked, _COEFFICIENTS // (max(model.memories) * model.dtype.itemsize)))


def batch_rows(model: MemoryModel) -> int:
    """How many sentences a batch has at most."""
    room = _PUT_BY // 2**7 if model.device.type == "cpu" else _PUT_BY
    return max(64, room // (6 * sum(model.memories)))


def _names(groups: list[Group]) -> dict[str, Any]:
    """The layer and the number in it of every memory that was searched."""
    layers = [np.full(len(group.memories), group.layer, dtype=np.int32) for group in groups]
    numbers = [group.memories.numpy().astype(np.int32) for group in groups]
    return {"layer": np.concatenate(layers), "memory": np.concatenate(numbers)}


def _triggers(study: Study, names: dict[str, Any], keys: Tensor) -> dict[str, Any]:
    """The columns of a table of triggers: by layer, memory and rank."""
    row, rank = (column.numpy() for column in (keys != EMPTY).nonzero().unbind(1))
    kept = keys[keys != EMPTY]
    places = locate(study.path("sentences.parquet"), prefixes_of(kept).numpy())
    return {
        "layer": names["layer"][row],
        "memory": names["memory"][row],
        "rank": (rank + 1).astype(np.int32),
        "coefficient": coefficients_of(kept).numpy(),
        "sentence": places.sentences,
        "position": places.positions,
        "next_token": places.next_tokens,
    }


def _counts(study: Study, state: dict[str, Any]) -> dict[str, Any]:
    """The columns of the table of memories."""
    sampled = state["sample"].sort(1, descending=True).values  # by coefficient, for a reader's eye
    present = sampled != EMPTY
    places = locate(study.path("sentences.parquet"), prefixes_of(sampled[present]).numpy())
    histogram = state["histogram"]
    seen = histogram.sum(1)
    bins = np.arange(len(histogram) + 1) * histogram.shape[1]
    samples = np.concatenate([[0], present.sum(1).cumsum(0).numpy()])
    return {
        "seen": seen.numpy(),
        "fired": histogram[:, ABOVE_ZERO].sum(1).numpy(),
        "mean": (state["total"] / seen).float().numpy(),
        "maximum": state["maximum"].numpy(),
        "histogram": _lists(bins, histogram.flatten().numpy()),
        "sample_coefficients": _lists(samples, coefficients_of(sampled[present]).numpy()),
        "sample_sentences": _lists(samples, places.sentences),
        "sample_positions": _lists(samples, places.positions),
    }


def _lists(offsets: Any, values: Any) -> pa.ListArray:
    kind = np.float32 if values.dtype == np.float32 else np.int32
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values.astype(kind)))


@contextmanager
def _uninterrupted() -> Iterator[Callable[[], bool]]:
    """Have Ctrl-C wait until the block is left, so that a batch counts wholly or not at all; a second one does not wait."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread is interrupted
        return
    asked: list[int] = []
    usual = signal.getsignal(signal.SIGINT)

    def wait(number: int, _frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    signal.signal(signal.SIGINT, wait)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, usual)
    if asked:
        raise KeyboardInterrupt
