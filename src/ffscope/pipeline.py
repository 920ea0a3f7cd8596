"""The stages in their order, each on the same study folder."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ffscope.analysis.examples import ExampleWriter
from ffscope.analysis.triggers import find_triggers
from ffscope.corpus.ingest import write_sentences
from ffscope.errors import CorpusError, FfscopeError, InputError, LensError, StudyError
from ffscope.models.fingerprint import manifest_entry
from ffscope.models.inputs import bos_token
from ffscope.models.memory_model import MemoryModel
from ffscope.options.analysis import ExampleOptions, LensOptions
from ffscope.options.bag import Options
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.search.example_pass import Observer, draw, observe
from ffscope.stages.registry import built_in, stages, stages_in_run
from ffscope.stages.stage import Stage, Work, resolve
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS

logger = logging.getLogger(__name__)


def triggers(
    model: MemoryModel,
    corpus: CorpusOptions,
    out: Path | str,
    *,
    search: SearchOptions | None = None,
    checkpoint_every: float = 60.0,
    progress: ProgressCallback = no_progress,
) -> Study:
    """Read a corpus into a study and find every memory's triggers in it. What is there already is not done again."""
    with Study.writing(out, manifest_entry(model)) as study:
        _search(study, model, corpus, search or SearchOptions(), checkpoint_every, progress)
    return study


def analyse(
    stage: str,
    model: MemoryModel | None,
    folder: Path | str,
    *,
    device: str = "auto",
    progress: ProgressCallback = no_progress,
    **options: Any,
) -> Study:
    """One stage after the search, on a study that has its triggers; `options` are fields of any stage's options.

    Where the stage needs no model, or finds an encoder in its place, `model` may be None.
    """
    names = [row.name for row in stages().values() if row.run or row.rows or row.observe]
    if stage not in names:
        raise StudyError(f"There is no stage {stage!r}. After the search come: {', '.join(names)}.")
    with opened(folder, model) as study:
        work = Work(study, options_of(study, options), model, progress, device)
        run_stage(stages()[stage], work)
    return study


def run(
    model: MemoryModel,
    corpus: CorpusOptions,
    out: Path | str,
    *,
    search: SearchOptions | None = None,
    checkpoint_every: float = 60.0,
    progress: ProgressCallback = no_progress,
    **options: Any,
) -> Study:
    """Every stage and the report; a stage that this model or text does not allow is left out, and the study says why."""
    with Study.writing(out, manifest_entry(model)) as study:
        work = Work(study, options_of(study, options), model, progress, str(model.device))
        for row in stages_in_run():  # first, so that a slip is not noticed after hours
            if row.check:
                resolve(row.check)(work.options)
        _search(study, model, corpus, search or SearchOptions(), checkpoint_every, progress)
        _run_all(work)
        _report(work)
    return study


@contextmanager
def opened(folder: Path | str, model: MemoryModel | None) -> Iterator[Study]:
    """A study that has its triggers, to add to; with a model, which must be its own."""
    Study.open(folder).need("triggers")
    with Study.adding(folder) if model is None else Study.writing(folder, manifest_entry(model)) as study:
        yield study


def options_of(study: Study, values: Mapping[str, Any]) -> Options:
    """Options of the stages: what is asked for; where that is None, what the study was made with, or else the default."""
    kinds = [kind for row in stages().values() for kind in row.options if kind not in (CorpusOptions, SearchOptions)]
    return Options.parse(kinds, values, study.settings)


def run_stage(stage: Stage, work: Work) -> str | None:
    """Run one stage, unless it is done; gives what is to be said of it, if anything."""
    if stage.observe:
        _observe(work, [resolve(stage.observe)(work)])
        return None
    if stage.run:
        return resolve(stage.run)(work)
    _write_rows(stage, work)
    return None


def _run_all(work: Work) -> None:
    """Every stage of a run; those that observe the examples share one pass over them, where the first of them stands."""
    together = [row for row in stages_in_run() if row.observe]
    for row in stages_in_run():
        if row in together[:1]:
            _observe_together(together, work)
        elif row not in together:
            with _or_skipped(work.study, row.name):
                run_stage(row, work)


def _observe_together(rows: list[Stage], work: Work) -> None:
    observers: list[Observer] = []
    for row in rows:
        with _or_skipped(work.study, row.name):
            observers.append(resolve(row.observe)(work))
    with _or_skipped(work.study, *(observer.stage for observer in observers)):
        try:
            _observe(work, observers)
        except FfscopeError:
            raise
        except Exception as error:  # if it is of another package's stage, the others are observed without that
            foreign = [observer.stage for observer in observers if observer.stage not in built_in()]
            if not foreign:
                raise
            _skip(work.study, foreign, f"{type(error).__name__}: {error}")
            _observe(work, [observer for observer in observers if observer.stage not in foreign])


def _observe(work: Work, observers: list[Observer]) -> None:
    """The examples, and what is observed at them, in one pass."""
    study, model, count = work.study, work.model, work.options(ExampleOptions).examples
    examples = draw(study, count, study.settings["seed"])
    everyone: list[Observer] = [ExampleWriter(study, examples, count), *observers]
    left = [observer for observer in everyone if not study.done(observer.stage, observer.settings)]
    if not left:
        return
    if len(examples) < count:
        logger.warning("The held-out text has %d prefixes; all of them are examples, not %d.", len(examples), count)
    lens = None if model.top is None else model.lens(work.options(LensOptions).lens)
    observe(study, model, left, examples, lens=lens, progress=work.progress)


def _write_rows(stage: Stage, work: Work) -> None:
    """A stage that gives the columns of its one table: everything around that is done here."""
    study, settings = work.study, stage.settings(work.options)
    for name in stage.needs:
        study.need(name)
    if study.done(stage.name, settings):
        return
    import pyarrow as pa

    start = time.perf_counter()
    work.progress(Progress(stage.name, 0, 1, unit="tables"))
    columns, file = resolve(stage.rows)(work), stage.tables[0].file
    with study.table(file) as writer:
        writer.write_table(pa.Table.from_pydict(columns, SCHEMAS[file]), row_group_size=2**16)
    study.finish(stage.name, settings, seconds=time.perf_counter() - start)
    work.progress(Progress(stage.name, 1, 1, unit="tables"))


def _search(
    study: Study,
    model: MemoryModel,
    corpus: CorpusOptions,
    search: SearchOptions,
    checkpoint_every: float,
    progress: ProgressCallback,
) -> None:
    search = search.resolved(model.memories)
    corpus = replace(corpus, max_tokens=_room(model, corpus.max_tokens, bos=search.bos))
    write_sentences(study, model.tokenizer, corpus, progress=progress)
    find_triggers(study, model, search, checkpoint_every=checkpoint_every, progress=progress)


@contextmanager
def _or_skipped(study: Study, *names: str) -> Iterator[None]:
    """Where a model or a text does not allow a stage, the study says so and goes on."""
    try:
        yield
    except (LensError, CorpusError) as error:
        _skip(study, names, str(error))
    except Exception as error:  # of another package's stage, which must not cost the others
        if built_in() & set(names):
            raise
        _skip(study, names, f"{type(error).__name__}: {error}")


def _skip(study: Study, names: Iterable[str], why: str) -> None:
    for name in names:
        logger.warning("Left out: %s. %s", name, why)
        study.skip(name, why)


def _report(work: Work) -> None:
    try:
        write_report = resolve(stages()["report"].run)
    except ModuleNotFoundError as missing:  # a machine with a GPU may have torch and no more
        logger.warning(
            "Left out: the report, since %s is not installed. `ffscope report` makes it on a machine that has it.",
            missing.name,
        )
        return
    write_report(work)


def _room(model: MemoryModel, max_tokens: int, *, bos: bool) -> int:
    """How many tokens of a sentence the model takes, up to those that are wanted."""
    if model.tokenizer is None:
        raise InputError(
            "This model came without a tokenizer, so it cannot read a corpus. Put its tokenizer beside it."
        )
    room = model.positions
    if room is None:
        return max_tokens
    starts = getattr(model.model.config, "is_encoder_decoder", False)  # its decoder, with a token of its own
    room -= int(starts or (bos and bos_token(model.tokenizer) is not None))
    if room < max_tokens:
        logger.warning(
            "This model takes %d tokens of a sentence; longer ones are cut there, not at %d.", room, max_tokens
        )
    return min(room, max_tokens)
