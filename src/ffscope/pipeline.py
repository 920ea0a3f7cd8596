"""Runs the stages in order on one study folder."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ffscope.analysis.examples import ExampleWriter
from ffscope.analysis.triggers import find_triggers
from ffscope.corpus.reading import Reading
from ffscope.engines.base import Engine
from ffscope.engines.local import LocalEngine
from ffscope.engines.sharded_table import write_observed, write_shards
from ffscope.errors import CorpusError, FfscopeError, GradientError, InputError, LensError, StudyError
from ffscope.models.info import ModelInfo
from ffscope.models.inputs import bos_token
from ffscope.models.lenses import is_learned
from ffscope.models.memory_model import MemoryModel
from ffscope.options.analysis import ExampleOptions, LensOptions
from ffscope.options.corpus import CorpusOptions
from ffscope.options.option_set import Options
from ffscope.options.search import SearchOptions
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.pruning.written import Pruned, write_pruned
from ffscope.search.example_pass import Observer, draw_examples
from ffscope.stages.prune import PrunedModelOptions
from ffscope.stages.registry import built_in, stages, stages_in_run
from ffscope.stages.stage import Stage, Work, resolve
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS
from ffscope.study.status import noting

logger = logging.getLogger(__name__)


def triggers(
    model: MemoryModel | Engine,
    corpus: CorpusOptions,
    out: Path | str,
    *,
    search: SearchOptions | None = None,
    readers: int | None = None,
    checkpoint_every: float = 60.0,
    progress: ProgressCallback = no_progress,
) -> Study:
    """Read a corpus into a study and find every memory's triggers in it. Finished work is not repeated.

    `model` is a loaded model, or the engine that runs one. `readers` processes split and tokenize the text, by default one per
    core. The search of a long text begins while they read.
    """
    engine = engine_of(model)
    with Study.writing(out, engine.info.entry) as study, noting(study, progress) as noted:
        _search(study, engine, corpus, search or SearchOptions(), readers, checkpoint_every, noted)
    return study


def analyse(
    stage: str,
    model: MemoryModel | Engine | None,
    folder: Path | str,
    *,
    device: str = "auto",
    progress: ProgressCallback = no_progress,
    **options: Any,
) -> Study:
    """Run one stage on a study that has its triggers; `options` are fields of the stages' options dataclasses.

    `model` may be an engine, or None if the stage needs no model, or uses an installed encoder instead.
    """
    names = [row.name for row in stages().values() if row.run or row.rows or row.shards or row.observe]
    if stage not in names:
        raise StudyError(f"There is no stage {stage!r}. The stages after the search are: {', '.join(names)}.")
    engine = engine_of(model)
    with open_for_stage(folder, engine, stages()[stage]) as study, noting(study, progress) as noted:
        work = Work(study, options_of(study, options), engine, noted, device)
        run_stage(stages()[stage], work)
    return study


def prune(
    model: MemoryModel | Engine,
    folder: Path | str,
    out: Path | str,
    *,
    share: float,
    progress: ProgressCallback = no_progress,
    **options: Any,
) -> Pruned:
    """Write a model without a share of its memories, chosen by a score of a study, as a folder that transformers loads.

    Options are those of `ffscope prune --out`: `score` (effect_size), `replace` (zero or mean), `zero_rows`, `ranking` (layer or
    model), `prune_prefixes`, `prune_sentences`. Curves are measured by `analyse("prune", model, folder)`.
    """
    engine = engine_of(model)
    with open_for_stage(folder, engine, stages()["prune"]) as study, noting(study, progress) as noted:
        work = Work(study, options_of(study, {**options, "share": share, "out": Path(out)}), engine, noted)
        return write_pruned(work, work.options(PrunedModelOptions))


def run(
    model: MemoryModel | Engine,
    corpus: CorpusOptions,
    out: Path | str,
    *,
    search: SearchOptions | None = None,
    readers: int | None = None,
    checkpoint_every: float = 60.0,
    progress: ProgressCallback = no_progress,
    **options: Any,
) -> Study:
    """Run every stage and the report. A stage that this model or text does not support is skipped; study.json has the reason."""
    engine = engine_of(model)
    with Study.writing(out, engine.info.entry) as study, noting(study, progress) as noted:
        work = Work(study, options_of(study, options), engine, noted)
        for row in stages_in_run():  # before the search, which may take hours
            if row.check:
                resolve(row.check)(work.options)
        _search(study, engine, corpus, search or SearchOptions(), readers, checkpoint_every, noted)
        if is_learned(work.options(LensOptions).lens):
            run_stage(stages()["lens"], work)
        _run_all(work)
        _report(work)
    return study


def learn_lenses(
    model: MemoryModel | Engine,
    folder: Path | str,
    corpus: CorpusOptions | None = None,
    *,
    readers: int | None = None,
    progress: ProgressCallback = no_progress,
    **options: Any,
) -> Study:
    """Learn the lenses `tuned` and `jacobian` of a model, and save them with a study: an existing one, or one of a corpus.

    `model.lens("tuned", folder)` then reads vectors through them. `options` are fields of the stage's options dataclasses.
    """
    engine = engine_of(model)
    if corpus is not None:
        with Study.writing(folder, engine.info.entry) as study, noting(study, progress) as noted:
            bos = study.settings.get("bos", SearchOptions.bos)
            with _reading(study, engine, corpus, bos=bos, readers=readers, progress=noted) as reading:
                reading.wait()
    return analyse("lens", engine, folder, progress=progress, **options)


def engine_of(model: MemoryModel | Engine | None) -> Engine:
    """The engine that runs a model: itself, or this process."""
    return model if isinstance(model, Engine) else LocalEngine(model)


@contextmanager
def open_for_stage(folder: Path | str, engine: Engine, stage: Stage) -> Iterator[Study]:
    """A study that has what a stage needs of the search, opened for writing. A model must be the one that was studied."""
    Study.open(folder).need("sentences" if "sentences" in stage.needs else "triggers")
    with Study.writing(folder, engine.info.entry) if engine.has_model else Study.adding(folder) as study:
        yield study


def options_of(study: Study, values: Mapping[str, Any]) -> Options:
    """The options of the stages. A value that is None is replaced by the one stored in the study, or else by the default."""
    kinds = [kind for row in stages().values() for kind in row.options if kind not in (CorpusOptions, SearchOptions)]
    return Options.parse(kinds, values, study.settings)


def run_stage(stage: Stage, work: Work) -> str | None:
    """Run one stage unless it is done. Returns a message to print, if any."""
    if stage.observe:
        _observe(work, [resolve(stage.observe)(work)])
        return None
    if "examples" in stage.needs:
        _observe(work, [])
    if stage.run:
        return resolve(stage.run)(work)
    _write_table(stage, work)
    return None


def _run_all(work: Work) -> None:
    """Run every stage; those that observe the examples share one pass, at the place of the first of them."""
    observing = [row for row in stages_in_run() if row.observe]
    for row in stages_in_run():
        if row in observing[:1]:
            _observe_all(observing, work)
        elif row not in observing:
            with _skip_on_error(work.study, row.name):
                run_stage(row, work)


def _observe_all(rows: list[Stage], work: Work) -> None:
    observers: list[Observer] = []
    for row in rows:
        with _skip_on_error(work.study, row.name):
            observers.append(resolve(row.observe)(work))
    with _skip_on_error(work.study, *(observer.stage for observer in observers)):
        try:
            _observe(work, observers)
        except FfscopeError:
            raise
        except Exception as error:  # may come from a plugin: repeat without plugins
            plugins = [observer.stage for observer in observers if observer.stage not in built_in()]
            if not plugins:
                raise
            _skip(work.study, plugins, f"{type(error).__name__}: {error}")
            _observe(work, [observer for observer in observers if observer.stage not in plugins])


def _observe(work: Work, observers: list[Observer]) -> None:
    """Run the model over the examples once, for all observers that are not done."""
    study, count = work.study, work.options(ExampleOptions).examples
    examples = draw_examples(study, count, study.settings["seed"])
    all_observers: list[Observer] = [ExampleWriter(study, examples, count), *observers]
    remaining = [observer for observer in all_observers if not study.done(observer.stage, observer.settings)]
    if not remaining:
        return
    if len(examples) < count:
        logger.warning(
            "The held-out text has only %d prefixes; all are used as examples, instead of %d.",
            len(examples),
            count,
        )
    write_observed(work, remaining, examples)


def _write_table(stage: Stage, work: Work) -> None:
    """Run a stage that returns its table, or its shards: check what it needs, write the table, update study.json."""
    study, settings = work.study, stage.settings(work.options)
    for name in stage.needs:
        study.need(name)
    if study.done(stage.name, settings):
        return
    if stage.shards:
        write_shards(stage, resolve(stage.shards), work)
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
    engine: Engine,
    corpus: CorpusOptions,
    search: SearchOptions,
    readers: int | None,
    checkpoint_every: float,
    progress: ProgressCallback,
) -> None:
    model = engine.info
    search = search.resolved(model.memories)
    with _reading(study, engine, corpus, bos=search.bos, readers=readers, progress=progress) as reading:
        find_triggers(reading, engine, search, checkpoint_every=checkpoint_every, progress=progress)


def _reading(
    study: Study,
    engine: Engine,
    corpus: CorpusOptions,
    *,
    bos: bool,
    readers: int | None,
    progress: ProgressCallback,
) -> AbstractContextManager[Reading]:
    """The text of a study, which is read within the block."""
    corpus = replace(corpus, max_tokens=_max_sentence_tokens(engine.info, corpus.max_tokens, bos=bos))
    return Reading.of(
        study, engine.info.tokenizer, corpus, readers=readers, splitting=engine.splitting, progress=progress
    )


@contextmanager
def _skip_on_error(study: Study, *names: str) -> Iterator[None]:
    """Skip stages that the model or the text does not support, and note the reason in study.json."""
    try:
        yield
    except (LensError, CorpusError, GradientError) as error:
        _skip(study, names, str(error))
    except Exception as error:  # a failing plugin must not stop the run
        if built_in() & set(names):
            raise
        _skip(study, names, f"{type(error).__name__}: {error}")


def _skip(study: Study, names: Iterable[str], why: str) -> None:
    for name in names:
        logger.warning("Skipped: %s. %s", name, why)
        study.skip(name, why)


def _report(work: Work) -> None:
    try:
        write_report = resolve(stages()["report"].run)
    except ModuleNotFoundError as missing:  # a GPU machine may have only torch
        logger.warning(
            "Skipped: the report, because %s is not installed. Run `ffscope report` on a machine that has it.",
            missing.name,
        )
        return
    write_report(work)


def _max_sentence_tokens(model: ModelInfo, max_tokens: int, *, bos: bool) -> int:
    """The largest sentence length in tokens: `max_tokens`, or less if the model has fewer positions."""
    if model.tokenizer is None:
        raise InputError(
            "This model has no tokenizer, so it cannot read a corpus. Put the tokenizer files into the model's folder."
        )
    positions = model.positions
    if positions is None:
        return max_tokens
    positions -= int(model.has_start_token or (bos and bos_token(model.tokenizer) is not None))
    if positions < max_tokens:
        logger.warning(
            "This model takes at most %d tokens per sentence; longer sentences are truncated at that length, not at %d.",
            positions,
            max_tokens,
        )
    return min(positions, max_tokens)
