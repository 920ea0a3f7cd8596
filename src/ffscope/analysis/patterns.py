"""What the triggers of every memory share: surface forms, and meaning beyond them."""

import logging
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.models.encoder import Encoder, check_folder, find_encoder, is_there
from ffscope.models.memory_model import MemoryModel
from ffscope.options.bag import Options
from ffscope.patterns.background import Background
from ffscope.patterns.candidates import SHALLOW, Rates
from ffscope.patterns.describe import describe
from ffscope.patterns.pattern import LEAST, MACHINE, MOST, TRIGGERS, Pattern
from ffscope.patterns.prefix_embeddings import EncoderReader, ModelReader, Reader
from ffscope.patterns.prefixes import read_prefixes, sample_sentences
from ffscope.patterns.semantic import Layer, set_bits
from ffscope.patterns.shallow import Shared, Triggers, find_shared
from ffscope.patterns.table import TABLE, write_patterns
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.stages.patterns import PatternOptions
from ffscope.stages.stage import Work
from ffscope.study.folder import Study

logger = logging.getLogger(__name__)

_WIDEST = 60  # triggers of a memory: a bit for each
_AT_ONCE = 4096  # memories of a layer: a mixture of experts may have 100,000


def find_patterns(
    study: Study,
    model: MemoryModel | None,
    *,
    encoder: str | None = None,
    triggers: int | None = None,
    device: str = "auto",
    progress: ProgressCallback = no_progress,
) -> None:
    """Label what the first triggers (25) of every memory share: patterns.parquet, with the machine as annotator.

    Meaning is read by the encoder that is named, or else one that is installed, or else by the model's middle layer, which
    `encoder="model"` asks for. What was found by another encoder, or in more or fewer triggers, is found anew.
    """
    study.need("triggers")
    check_asked(encoder, triggers)
    before, held = study.manifest["stages"].get("patterns", {}), _held(study)
    if is_done(study, encoder, triggers):
        return
    encoder = reads_by(study, encoder)
    found = None if encoder == "model" else find_encoder(encoder, device)
    asked: dict[str, Any] = {
        "encoder": _source(found, model),
        "encoder_asked": encoder,
        "encoder_fingerprint": found and found.fingerprint,
        "pattern_triggers": triggers or before.get("pattern_triggers", TRIGGERS),
    }
    if asked.items() <= held.items():
        return
    if asked["encoder"] is None:
        logger.warning(
            "No encoder is installed and no model was given: meaning is looked for in words and documents alone."
        )
    start = time.perf_counter()
    table = pq.read_table(study.path("triggers.parquet"), filters=[("rank", "<=", asked["pattern_triggers"])])
    prefixes, sample = read_prefixes(study, table, sample_sentences(study, study.settings["seed"]), progress=progress)
    meanings = Background(study, prefixes, sample)
    meanings.read(_reader(study, found, model, meanings), asked, progress)
    patterns, counts = _found(study, table, meanings, progress)
    write_patterns(study, MACHINE, patterns)
    study.finish("patterns", {}, seconds=time.perf_counter() - start, **asked, **counts)
    meanings.drop()


def is_done(study: Study, encoder: str | None, triggers: int | None) -> bool:
    """Whether patterns were found already, and nothing else is asked for; an encoder that is named is looked at first."""
    held = _held(study)
    return bool(held) and encoder is None and triggers in (None, held["pattern_triggers"])


def reads_by(study: Study, encoder: str | None) -> str | None:
    """The encoder that is asked for, now or before."""
    return encoder or study.manifest["stages"].get("patterns", {}).get("encoder_asked")


def _held(study: Study) -> dict[str, Any]:
    """What a finished stage was asked for; nothing where its table cannot be read."""
    if not study.has("patterns"):
        return {}
    try:
        pq.read_schema(study.path(TABLE))
    except (pa.ArrowInvalid, OSError):
        logger.warning("%s cannot be read; it is made again, without what language models said.", study.path(TABLE))
        study.path(TABLE).unlink()
        return {}
    return study.manifest["stages"]["patterns"]


def check_asked(encoder: str | None, triggers: int | None) -> None:
    """Raise where patterns cannot be found in this way."""
    if triggers is not None and not LEAST <= triggers <= _WIDEST:
        raise InputError(f"pattern_triggers is {triggers}. Expected {LEAST} to {_WIDEST}.")
    if encoder not in (None, "model"):
        check_folder(str(encoder))


def _reader(study: Study, encoder: Encoder | None, model: MemoryModel | None, meanings: Background) -> Reader | None:
    if encoder is not None:
        return EncoderReader(encoder, meanings.prefixes)
    return None if model is None else ModelReader(model, study, meanings.sample, seed=meanings.seed)


def _source(encoder: Encoder | None, model: MemoryModel | None) -> str | None:
    """Where vectors come from."""
    if encoder is not None:
        return encoder.name
    return None if model is None else f"words by layer {model.layers // 2} of the studied model"


def _found(
    study: Study, table: pa.Table, meanings: Background, progress: ProgressCallback
) -> tuple[dict[Memory, list[Pattern]], dict[str, Any]]:
    """The patterns of every memory that has any, and how many prefixes are covered."""
    rates, sample = Rates(meanings.sample, SHALLOW), meanings.sample_statistics()
    tokens = pq.read_table(study.path("vocabulary.parquet"))["text"].to_pylist()
    layer, memory, rank = (table[name].to_numpy() for name in ("layer", "memory", "rank"))
    patterns: dict[Memory, list[Pattern]] = {}
    covered, blocks = 0, np.unique(np.stack([layer, memory // _AT_ONCE]), axis=1).T.tolist()
    for done, (number, block) in enumerate(blocks):
        progress(Progress("patterns", done, len(blocks), unit="blocks of memories"))
        here = np.flatnonzero((layer == number) & (memory // _AT_ONCE == block))
        first, distinct = block * _AT_ONCE, meanings.distinct_index[here]
        triggers = Triggers(meanings.prefixes.take(here), memory[here] - first, rank[here] - 1)
        found = Layer(triggers, meanings.whole[distinct], meanings.last[distinct], sample)
        for one, best in _best(found, find_shared(triggers, rates), tokens):
            patterns[Memory(number, first + one)] = best
            covered += len({rank for pattern in best for rank in pattern.covers})
    progress(Progress("patterns", len(blocks), len(blocks), unit="blocks of memories"))
    return patterns, {"prefixes": len(table), "covered": covered}


def _best(found: Layer, shared: dict[int, list[Shared]], tokens: list[str]) -> Iterator[tuple[int, list[Pattern]]]:
    """The patterns of every memory that has any, best first."""
    meanings = found.find(shared)
    for one in sorted(shared.keys() | meanings.keys()):
        shallow = [_told(form, found, one, tokens) for form in shared.get(one, [])]
        yield one, sorted([*shallow, *meanings.get(one, [])], key=_order)[:MOST]


def _order(pattern: Pattern) -> tuple[float, int]:
    """The least likely first, then what covers more."""
    return pattern.p_value or 0.0, -pattern.support


def _told(form: Shared, layer: Layer, memory: int, tokens: list[str]) -> Pattern:
    bits = set_bits(form.bits)
    members = [int(layer.rows[memory, bit]) for bit in bits]
    said = describe(form, layer.triggers.prefixes, members, tokens)
    return Pattern("shallow", said, tuple(bit + 1 for bit in bits), form.p_value)


def run(work: Work) -> None:
    """The stage."""
    options = work.options(PatternOptions)
    device = work.device if work.loaded is None else str(work.loaded.device)
    how = {"encoder": options.encoder, "triggers": options.pattern_triggers, "device": device}
    find_patterns(work.study, work.loaded, **how, progress=work.progress)  # type: ignore[arg-type]


def needs_model(study: Study, options: Options) -> bool:
    """Whether the studied model is to read meaning: not where an encoder does, or all is done."""
    how = options(PatternOptions)
    return not is_done(study, how.encoder, how.pattern_triggers) and not is_there(reads_by(study, how.encoder))


def check_options(options: Options) -> None:
    """Raise where patterns cannot be found in this way."""
    check_asked(options(PatternOptions).encoder, options(PatternOptions).pattern_triggers)
