"""The plan of a search: how much of the corpus is searched, in which batches, and what is kept."""

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ffscope.axes import Array
from ffscope.corpus.batches import Batch, batches
from ffscope.corpus.prefixes import chunks
from ffscope.corpus.reading import Reading
from ffscope.errors import StudyError
from ffscope.models.info import ModelInfo
from ffscope.models.memory_model import MemoryModel
from ffscope.options.search import SearchOptions
from ffscope.search.execute import Search, buffered_dtype, searched_memories
from ffscope.search.histogram import EDGES
from ffscope.search.passes import first_token
from ffscope.search.time_budget import affordable_sentences
from ffscope.search.trigger_keys import LAST_PREFIX

if TYPE_CHECKING:
    from ffscope.engines.base import Engine

logger = logging.getLogger(__name__)

_ENOUGH_PICKED = 8192  # prefixes per histogram, above which only a sample is counted
_RAREST = 1024
_LONG = _RAREST * _ENOUGH_PICKED  # prefixes from which on one in _RAREST is counted, however many follow
_TOKENS_CPU, _TOKENS_GPU = 2048, 131072  # per batch
_MAX_COEFFICIENTS = 2**30  # bytes of one layer's coefficients in a batch
_MAX_BUFFER = 2**31  # bytes stored per batch: the highest coefficients, and all coefficients at the picked prefixes
_SHARD, _LONG_SHARD = 16, 32  # batches per shard, but for the first ones; the second for a GPU's batches


@dataclass(frozen=True)
class Plan:
    """One search of a study. The same plan gives the same batches on every machine."""

    options: SearchOptions
    total: (
        dict[str, int] | None
    )  # how many sentences and prefixes, from the beginning; None: all, and not all are read yet
    batch_tokens: int
    batch_sentences: int
    picked_one_in: int
    before: int  # tokens prepended to every sentence
    corpus: str | None  # its fingerprint; None if it is not read yet

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that study.json stores."""
        return {
            **_search_settings(self.options),
            "minutes": self.options.minutes,
            "batch_tokens": self.batch_tokens,
            "batch_sentences": self.batch_sentences,
            "picked_one_in": self.picked_one_in,
            "histogram_edges": EDGES,
        }

    def search(self, model: MemoryModel) -> Search:
        """A new search, before its first batch."""
        return Search(model, **_search_settings(self.options), rarity=self.picked_one_in)

    def assumes_too_much(self, reading: Reading) -> bool:
        """Whether the text, now read to its end, is shorter than was assumed while it was being read."""
        available = None if self.total else reading.searched
        return available is not None and rarity(available["prefixes"]) != self.picked_one_in

    def is_certain(self, reading: Reading) -> bool:
        """Whether enough of the text is read to know that this plan remains."""
        return self.total is not None or (reading.has_read(_LONG) and not self.assumes_too_much(reading))

    def names(self, model: ModelInfo) -> dict[str, Array]:
        """The layer and number of every searched memory, in the order of a state's rows."""
        settings = _search_settings(self.options)
        searched = searched_memories(model.memories, settings["layers"], settings["memories"])
        layers = [np.full(len(numbers), layer, dtype=np.int32) for layer, numbers in searched.items()]
        return {"layer": np.concatenate(layers), "memory": np.concatenate(list(searched.values()))}


class Shard(NamedTuple):
    """Consecutive batches of a plan."""

    number: int
    batches: tuple[Batch, ...]


def batches_of(plan: Plan, reading: Reading) -> Iterator[Batch]:
    """All batches of a plan. They depend only on the corpus and the settings."""
    text = chunks(reading, first=None if plan.total is None else plan.total["sentences"])
    return batches(text, tokens=plan.batch_tokens, before=plan.before, rows=plan.batch_sentences)


def shards(plan: Plan, reading: Reading) -> Iterator[Shard]:
    """The same batches in shards. These too depend only on the corpus and the settings, not on what searches them.

    The first ones are short, so that the search begins with the first text: of 1, 2, 4 … batches.
    """
    remaining = batches_of(plan, reading)
    most = _SHARD if plan.batch_tokens <= _TOKENS_CPU else _LONG_SHARD
    for number in count():
        members = tuple(islice(remaining, min(most, 2**number)))
        if not members:
            return
        yield Shard(number, members)


def requested_settings(options: SearchOptions) -> dict[str, Any]:
    """The settings that are known before the corpus is read or the speed is measured."""
    tokens = {"batch_tokens": options.batch_tokens} if options.batch_tokens else {}
    return {**_search_settings(options), "minutes": options.minutes, **tokens}


def make_plan(engine: "Engine", options: SearchOptions, reading: Reading) -> Plan:
    """The plan of a new search, or of the engine's unfinished search of this study.

    What share of the prefixes is counted depends on how many there are. Most engines wait until enough of the text is read to know
    it. One that would be idle starts at once as if the text were long: see `Plan.assumes_too_much`. With `minutes`, all wait for
    all of the text.
    """
    study, model = reading.study, engine.info
    note = engine.search_note(study)
    if note is not None and note["corpus"] is None and not reading.resumed:
        engine.discard_search(study)  # its text was not read to the end, and is now read anew
        note = None
    if not reading.done:
        engine.warm_up()
    if options.minutes is not None or engine.waits_for_text:
        reading.wait(None if options.minutes is not None else _LONG)
    total = _total(engine, options, reading) if note is None or note["total"] is None else note["total"]
    one_in = _RAREST if total is None else rarity(total["prefixes"])
    # A resumed search keeps its batches, even on another device.
    earlier = {} if note is None else note["settings"]
    plan = Plan(
        options,
        total=total,
        batch_tokens=options.batch_tokens or earlier.get("batch_tokens") or batch_tokens(model, one_in),
        batch_sentences=earlier.get("batch_sentences") or batch_rows(model),
        picked_one_in=one_in,
        before=_before(model, options),
        corpus=study.manifest["corpus"]["fingerprint"] if reading.done else None,
    )
    if note is not None and (note["settings"] != plan.settings or (note["corpus"] or plan.corpus) != plan.corpus):
        raise StudyError(
            f"{study.folder} has an unfinished search with other settings. Resume it with those settings, or delete "
            f"{note['file']} there to restart."
        )
    return plan


def _before(model: ModelInfo, options: SearchOptions) -> int:
    return int(first_token(model, bos=options.bos) is not None)


def _total(engine: "Engine", options: SearchOptions, reading: Reading) -> dict[str, int] | None:
    """The number of sentences and prefixes to search; None while they are being read."""
    available = reading.searched
    if available is None:
        return None
    check_prefixes(available["prefixes"])
    if options.minutes is None:
        return available
    sentences = affordable_sentences(
        engine.prefixes_per_second,
        reading,
        settings=_search_settings(options),
        seconds=60 * options.minutes,
        tokens=options.batch_tokens or batch_tokens(engine.info, 1),
        before=_before(engine.info, options),
    )
    if sentences < available["sentences"]:
        message = "%g minutes are enough for the first %d of %d sentences."
        logger.info(message, options.minutes, sentences, available["sentences"])
    prefixes = sum(int(chunk.lengths.sum()) for chunk in chunks(reading, first=sentences))
    return {"sentences": sentences, "prefixes": prefixes}


def check_prefixes(count: int) -> None:
    """Raise if there are more prefixes than can be numbered."""
    if count > LAST_PREFIX:
        raise StudyError(
            f"The corpus has {count:,} prefixes or more; at most {LAST_PREFIX:,} are supported. Limit it with --sentences."
        )


def _search_settings(options: SearchOptions) -> dict[str, Any]:
    """The options that determine what is searched and kept."""
    return {name: value for name, value in asdict(options).items() if name not in ("batch_tokens", "minutes")}


def rarity(prefixes: int) -> int:
    """One in this many prefixes is counted in the histograms: all of a small corpus, one in 1,024 of a very large one."""
    return min(_RAREST, 2 ** max(0, (prefixes // _ENOUGH_PICKED).bit_length() - 1))


def batch_tokens(model: ModelInfo, rarity: int) -> int:
    """The default number of tokens per batch."""
    picked = _MAX_BUFFER * rarity // (buffered_dtype(model).itemsize * sum(model.memories))
    if model.device.type == "cpu":
        return max(64, min(_TOKENS_CPU, picked))
    return max(64, min(_TOKENS_GPU, picked, _MAX_COEFFICIENTS // (max(model.memories) * model.dtype.itemsize)))


def batch_rows(model: ModelInfo) -> int:
    """The maximum number of sentences per batch."""
    room = _MAX_BUFFER // 2**7 if model.device.type == "cpu" else _MAX_BUFFER
    coefficient_and_position = buffered_dtype(model).itemsize + 2
    return max(64, room // (coefficient_and_position * sum(model.memories)))
