"""What a search does, decided before it begins: how much of the corpus it reads, in which batches, and what it keeps."""

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
from ffscope.search.time_budget import affordable
from ffscope.search.trigger_keys import LAST_PREFIX
from ffscope.study.folder import Study

logger = logging.getLogger(__name__)

_ENOUGH_PICKED = 8192  # prefixes in a histogram before it takes only some of them
_RAREST = 1024
_ON_CPU, _ELSEWHERE = 2048, 131072  # tokens of a batch
_COEFFICIENTS = 2**30  # bytes of one layer's coefficients in a batch, at most
_PUT_BY = 2**31  # bytes of what is put by in a batch, at most: the highest coefficients, and all at the picked prefixes
_SHARD = 64  # batches of a shard


@dataclass(frozen=True)
class Plan:
    """One search of a study. The same plan gives the same batches on every machine."""

    options: SearchOptions
    sentences: int  # the first so many that are not held out
    prefixes: int  # in those sentences
    batch_tokens: int
    batch_sentences: int
    picked_one_in: int
    before: int  # tokens that are put before every sentence
    corpus: str  # its fingerprint

    @property
    def settings(self) -> dict[str, Any]:
        """What the study's manifest says of the search."""
        return {
            **_kept(self.options),
            "minutes": self.options.minutes,
            "batch_tokens": self.batch_tokens,
            "batch_sentences": self.batch_sentences,
            "picked_one_in": self.picked_one_in,
            "histogram_edges": EDGES,
        }

    @property
    def total(self) -> dict[str, int]:
        """How much is searched."""
        return {"sentences": self.sentences, "prefixes": self.prefixes}

    def search(self, model: MemoryModel) -> Search:
        """A search that has seen nothing yet."""
        return Search(model, **_kept(self.options), rarity=self.picked_one_in)

    def groups(self, model: MemoryModel) -> list[Group]:
        """The memories that are searched, in the order of a state's rows."""
        kept = _kept(self.options)
        return groups_of(model, kept["layers"], kept["memories"])


class Shard(NamedTuple):
    """Consecutive batches of a plan; `first` is the number of the first of them."""

    number: int
    first: int
    batches: tuple[Batch, ...]


def shards(plan: Plan, sentences: Path) -> Iterator[Shard]:
    """All batches of a plan, read from the study's sentences.parquet. The corpus and the settings alone decide them."""
    text = chunks(sentences, first=plan.sentences)
    all_batches = batches(text, tokens=plan.batch_tokens, before=plan.before, rows=plan.batch_sentences)
    for number in count():
        some = tuple(islice(all_batches, _SHARD))
        if not some:
            return
        yield Shard(number, number * _SHARD, some)


def given_settings(options: SearchOptions) -> dict[str, Any]:
    """The settings that are known before anything is read or measured."""
    tokens = {"batch_tokens": options.batch_tokens} if options.batch_tokens else {}
    return {**_kept(options), "minutes": options.minutes, **tokens}


def make_plan(study: Study, model: MemoryModel, options: SearchOptions) -> Plan:
    """The plan of a new search, or that of the search which the study holds a checkpoint of."""
    note = checkpoint.read_note(study)
    total = _total(study, model, options) if note is None else note["total"]
    one_in = rarity(total["prefixes"])
    # A search that was begun keeps its batches, on whatever device it is resumed.
    begun = {} if note is None else note["settings"]
    plan = Plan(
        options,
        **total,
        batch_tokens=options.batch_tokens or begun.get("batch_tokens") or batch_tokens(model, one_in),
        batch_sentences=begun.get("batch_sentences") or batch_rows(model),
        picked_one_in=one_in,
        before=int(first_token(model, bos=options.bos) is not None),
        corpus=study.manifest["corpus"]["fingerprint"],
    )
    if note is not None and (note["settings"] != plan.settings or note["corpus"] != plan.corpus):
        raise StudyError(
            f"{study.folder} holds a search that was begun with other settings. Run it with those, or remove "
            f"{checkpoint.NAME} there to begin anew."
        )
    return plan


def _total(study: Study, model: MemoryModel, options: SearchOptions) -> dict[str, int]:
    """How many sentences and prefixes are searched."""
    everything = study.manifest["corpus"]["searched"]
    if everything["prefixes"] > LAST_PREFIX:
        raise StudyError(
            f"The corpus has {everything['prefixes']:,} prefixes; up to {LAST_PREFIX:,} are numbered. Use --sentences."
        )
    if options.minutes is None:
        return everything
    text = study.path("sentences.parquet")
    trial = Search(model, **_kept(options))
    tokens = options.batch_tokens or batch_tokens(model, 1)
    sentences = affordable(trial, text, seconds=60 * options.minutes, tokens=tokens)
    if sentences < everything["sentences"]:
        message = "In %g minutes the first %d of %d sentences."
        logger.info(message, options.minutes, sentences, everything["sentences"])
    prefixes = sum(int(chunk.lengths.sum()) for chunk in chunks(text, first=sentences))
    return {"sentences": sentences, "prefixes": prefixes}


def _kept(options: SearchOptions) -> dict[str, Any]:
    """What is searched and kept, without how."""
    return {name: value for name, value in asdict(options).items() if name not in ("batch_tokens", "minutes")}


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
