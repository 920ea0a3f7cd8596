"""The plan of a search: how much of the corpus is searched, in which batches, and what is kept."""

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

from ffscope.corpus.batches import Batch, batches
from ffscope.corpus.prefixes import chunks
from ffscope.errors import StudyError
from ffscope.models.memory_model import MemoryModel
from ffscope.options.search import SearchOptions
from ffscope.search import checkpoint
from ffscope.search.execute import Group, Search, groups_of
from ffscope.search.histogram import EDGES
from ffscope.search.passes import first_token
from ffscope.search.time_budget import affordable_sentences
from ffscope.search.trigger_keys import LAST_PREFIX
from ffscope.study.folder import Study

logger = logging.getLogger(__name__)

_ENOUGH_PICKED = 8192  # prefixes per histogram, above which only a sample is counted
_RAREST = 1024
_TOKENS_CPU, _TOKENS_GPU = 2048, 131072  # per batch
_MAX_COEFFICIENTS = 2**30  # bytes of one layer's coefficients in a batch
_MAX_BUFFER = 2**31  # bytes stored per batch: the highest coefficients, and all coefficients at the picked prefixes
_SHARD = 64  # batches per shard


@dataclass(frozen=True)
class Plan:
    """One search of a study. The same plan gives the same batches on every machine."""

    options: SearchOptions
    sentences: int  # how many, from the beginning, of those not held out
    prefixes: int  # in those sentences
    batch_tokens: int
    batch_sentences: int
    picked_one_in: int
    before: int  # tokens prepended to every sentence
    corpus: str  # its fingerprint

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

    @property
    def total(self) -> dict[str, int]:
        """The number of sentences and prefixes to search."""
        return {"sentences": self.sentences, "prefixes": self.prefixes}

    def search(self, model: MemoryModel) -> Search:
        """A new search, before its first batch."""
        return Search(model, **_search_settings(self.options), rarity=self.picked_one_in)

    def groups(self, model: MemoryModel) -> list[Group]:
        """The searched memories, in the order of a state's rows."""
        settings = _search_settings(self.options)
        return groups_of(model, settings["layers"], settings["memories"])


class Shard(NamedTuple):
    """Consecutive batches of a plan; `first` is the number of the first of them."""

    number: int
    first: int
    batches: tuple[Batch, ...]


def shards(plan: Plan, sentences: Path) -> Iterator[Shard]:
    """All batches of a plan, read from the study's sentences.parquet. They depend only on the corpus and the settings."""
    text = chunks(sentences, first=plan.sentences)
    all_batches = batches(text, tokens=plan.batch_tokens, before=plan.before, rows=plan.batch_sentences)
    for number in count():
        members = tuple(islice(all_batches, _SHARD))
        if not members:
            return
        yield Shard(number, number * _SHARD, members)


def requested_settings(options: SearchOptions) -> dict[str, Any]:
    """The settings that are known before the corpus is read or the speed is measured."""
    tokens = {"batch_tokens": options.batch_tokens} if options.batch_tokens else {}
    return {**_search_settings(options), "minutes": options.minutes, **tokens}


def make_plan(study: Study, model: MemoryModel, options: SearchOptions) -> Plan:
    """The plan of a new search, or of the search in the study's checkpoint."""
    note = checkpoint.read_note(study)
    total = _total(study, model, options) if note is None else note["total"]
    one_in = rarity(total["prefixes"])
    # A resumed search keeps its batches, even on another device.
    earlier = {} if note is None else note["settings"]
    plan = Plan(
        options,
        **total,
        batch_tokens=options.batch_tokens or earlier.get("batch_tokens") or batch_tokens(model, one_in),
        batch_sentences=earlier.get("batch_sentences") or batch_rows(model),
        picked_one_in=one_in,
        before=int(first_token(model, bos=options.bos) is not None),
        corpus=study.manifest["corpus"]["fingerprint"],
    )
    if note is not None and (note["settings"] != plan.settings or note["corpus"] != plan.corpus):
        raise StudyError(
            f"{study.folder} has an unfinished search with other settings. Resume it with those settings, or delete "
            f"{checkpoint.NAME} there to restart."
        )
    return plan


def _total(study: Study, model: MemoryModel, options: SearchOptions) -> dict[str, int]:
    """The number of sentences and prefixes to search."""
    available = study.manifest["corpus"]["searched"]
    if available["prefixes"] > LAST_PREFIX:
        raise StudyError(
            f"The corpus has {available['prefixes']:,} prefixes; at most {LAST_PREFIX:,} are supported. Limit it with --sentences."
        )
    if options.minutes is None:
        return available
    text = study.path("sentences.parquet")
    trial = Search(model, **_search_settings(options))
    tokens = options.batch_tokens or batch_tokens(model, 1)
    sentences = affordable_sentences(trial, text, seconds=60 * options.minutes, tokens=tokens)
    if sentences < available["sentences"]:
        message = "%g minutes are enough for the first %d of %d sentences."
        logger.info(message, options.minutes, sentences, available["sentences"])
    prefixes = sum(int(chunk.lengths.sum()) for chunk in chunks(text, first=sentences))
    return {"sentences": sentences, "prefixes": prefixes}


def _search_settings(options: SearchOptions) -> dict[str, Any]:
    """The options that determine what is searched and kept."""
    return {name: value for name, value in asdict(options).items() if name not in ("batch_tokens", "minutes")}


def rarity(prefixes: int) -> int:
    """One in this many prefixes is counted in the histograms: all of a small corpus, one in 1,024 of a very large one."""
    return min(_RAREST, 2 ** max(0, (prefixes // _ENOUGH_PICKED).bit_length() - 1))


def batch_tokens(model: MemoryModel, rarity: int) -> int:
    """The default number of tokens per batch."""
    picked = _MAX_BUFFER * rarity // (4 * sum(model.memories))
    if model.device.type == "cpu":
        return max(64, min(_TOKENS_CPU, picked))
    return max(64, min(_TOKENS_GPU, picked, _MAX_COEFFICIENTS // (max(model.memories) * model.dtype.itemsize)))


def batch_rows(model: MemoryModel) -> int:
    """The maximum number of sentences per batch."""
    room = _MAX_BUFFER // 2**7 if model.device.type == "cpu" else _MAX_BUFFER
    return max(64, room // (6 * sum(model.memories)))
