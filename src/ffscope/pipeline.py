"""The stages in their order, each on the same study folder."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffscope.analysis.agreement import find_agreement
from ffscope.analysis.composition import Composition
from ffscope.analysis.examples import ExampleWriter
from ffscope.analysis.mutation import mutate
from ffscope.analysis.patterns import check_asked, find_patterns
from ffscope.analysis.refinement import Refinement
from ffscope.analysis.triggers import find_triggers
from ffscope.analysis.values import read_values
from ffscope.corpus.ingest import write_sentences
from ffscope.errors import CorpusError, InputError, LensError, StudyError
from ffscope.models.fingerprint import account
from ffscope.models.inputs import bos_token
from ffscope.models.lenses import check_lens_name
from ffscope.models.memory_model import MemoryModel
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.progress import ProgressCallback, no_progress
from ffscope.search.example_pass import Observer, draw, observe
from ffscope.study.folder import Study

if TYPE_CHECKING:
    from ffscope.labelling.cost import Price
    from ffscope.labelling.endpoint import Endpoint
    from ffscope.labelling.labeller import Labels

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Analysing:
    """How the stages after the search look at a study. The defaults are the paper's numbers."""

    lens: str = "norm"
    examples: int = 4000
    mutation_memories: int = 100  # of every layer
    mutation_triggers: int = 50
    pattern_triggers: int | None = None  # 25, or what was looked at before
    encoder: str | None = None  # one that is installed, or what was used before

    def __post_init__(self) -> None:
        check_lens_name(self.lens)
        for name in ("examples", "mutation_memories", "mutation_triggers"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}. Expected at least 1.")
        check_asked(self.encoder, self.pattern_triggers)

    @classmethod
    def of(cls, study: Study, asked: dict[str, Any]) -> "Analysing":
        """What is asked for; where that is None or missing, what the study was made with, or else the default."""
        names = {field.name for field in fields(cls)}
        if asked.keys() - names:
            raise InputError(
                f"There is no {min(asked.keys() - names)!r} to ask for. Choose from: {', '.join(sorted(names))}."
            )
        held = {name: value for name, value in study.settings.items() if name in names}
        return cls(**{**held, **{name: value for name, value in asked.items() if value is not None}})


def triggers(
    model: MemoryModel,
    reading: CorpusOptions,
    out: Path | str,
    *,
    searching: SearchOptions | None = None,
    checkpoint_every: float = 60.0,
    progress: ProgressCallback = no_progress,
) -> Study:
    """Read a corpus into a study and find every memory's triggers in it. What is there already is not done again."""
    with Study.writing(out, account(model)) as study:
        _search(study, model, reading, searching or SearchOptions(), checkpoint_every, progress)
    return study


def analyse(
    stage: str, model: MemoryModel, folder: Path | str, *, progress: ProgressCallback = no_progress, **asked: Any
) -> Study:
    """One stage after the search, on a study that has its triggers; `asked` are fields of Analysing."""
    if stage not in STAGES:
        raise StudyError(f"There is no stage {stage!r}. After the search come: {', '.join(STAGES)}.")
    Study.open(folder).need("triggers")
    with Study.writing(folder, account(model)) as study:
        STAGES[stage](study, model, Analysing.of(study, asked), progress)
    return study


def patterns(
    folder: Path | str, model: MemoryModel | None = None, *, progress: ProgressCallback = no_progress, **asked: Any
) -> Study:
    """Patterns on a study that has its triggers, with the model where no encoder is installed; `asked` goes to `find_patterns`."""
    Study.open(folder).need("triggers")
    with Study.adding(folder) if model is None else Study.writing(folder, account(model)) as study:
        find_patterns(study, model, progress=progress, **asked)
    return study


def label(folder: Path | str, endpoint: "Endpoint", price: "Price | None" = None, **asked: Any) -> "Labels":
    """A language model's patterns beside the machine's; `asked` goes to `labelling.labeller.label`."""
    from ffscope.labelling.labeller import label

    with endpoint, Study.adding(folder) as study:
        return label(study, endpoint, price=price, **asked)


def run(
    model: MemoryModel,
    reading: CorpusOptions,
    out: Path | str,
    *,
    searching: SearchOptions | None = None,
    checkpoint_every: float = 60.0,
    progress: ProgressCallback = no_progress,
    **asked: Any,
) -> Study:
    """Every stage and the report; a stage that this model or text does not allow is left out, and the study says why."""
    with Study.writing(out, account(model)) as study:
        how = Analysing.of(study, asked)  # first, so that a slip is not noticed after hours
        _search(study, model, reading, searching or SearchOptions(), checkpoint_every, progress)
        for stage in ("values", "agreement", "mutation"):
            with _or_skipped(study, stage):
                STAGES[stage](study, model, how, progress)
        observers = []
        for stage, observer in _OBSERVERS.items():
            with _or_skipped(study, stage):
                observers.append(observer(study, model, how))
        with _or_skipped(study, *(observer.stage for observer in observers)):
            _watch(study, model, how, observers, progress)
        _patterns(study, model, how, progress)
        _report(study, progress)
    return study


def _search(
    study: Study,
    model: MemoryModel,
    reading: CorpusOptions,
    searching: SearchOptions,
    checkpoint_every: float,
    progress: ProgressCallback,
) -> None:
    reading = replace(reading, max_tokens=_room(model, reading.max_tokens, bos=searching.bos))
    write_sentences(study, model.tokenizer, reading, progress=progress)
    find_triggers(study, model, searching, checkpoint_every=checkpoint_every, progress=progress)


def _values(study: Study, model: MemoryModel, how: Analysing, progress: ProgressCallback) -> None:
    read_values(study, model, lens=how.lens, progress=progress)


def _agreement(study: Study, _model: MemoryModel, how: Analysing, progress: ProgressCallback) -> None:
    find_agreement(study, lens=how.lens, progress=progress)


def _mutation(study: Study, model: MemoryModel, how: Analysing, progress: ProgressCallback) -> None:
    mutate(study, model, memories=how.mutation_memories, triggers=how.mutation_triggers, progress=progress)


def _composition(study: Study, model: MemoryModel, how: Analysing, progress: ProgressCallback) -> None:
    _watch(study, model, how, [_OBSERVERS["composition"](study, model, how)], progress)


def _refinement(study: Study, model: MemoryModel, how: Analysing, progress: ProgressCallback) -> None:
    _watch(study, model, how, [_OBSERVERS["refinement"](study, model, how)], progress)


def _patterns(study: Study, model: MemoryModel, how: Analysing, progress: ProgressCallback) -> None:
    device = str(model.device)
    find_patterns(study, model, encoder=how.encoder, triggers=how.pattern_triggers, device=device, progress=progress)


STAGES: dict[str, Callable[[Study, MemoryModel, Analysing, ProgressCallback], None]] = {
    "values": _values,
    "agreement": _agreement,
    "mutation": _mutation,
    "composition": _composition,
    "refinement": _refinement,
    "patterns": _patterns,
}
_OBSERVERS: dict[str, Callable[[Study, MemoryModel, Analysing], Observer]] = {
    "composition": lambda study, model, how: Composition(study, model, lens=how.lens, count=how.examples),
    "refinement": lambda study, model, how: Refinement(model, lens=how.lens, count=how.examples),
}


def _watch(
    study: Study, model: MemoryModel, how: Analysing, observers: list[Observer], progress: ProgressCallback
) -> None:
    """The examples, and what is observed at them, in one pass."""
    examples = draw(study, how.examples, study.settings["seed"])
    everyone: list[Observer] = [ExampleWriter(study, examples, how.examples), *observers]
    left = [observer for observer in everyone if not study.done(observer.stage, observer.settings)]
    if not left:
        return
    if len(examples) < how.examples:
        logger.warning(
            "The held-out text has %d prefixes; all of them are examples, not %d.", len(examples), how.examples
        )
    lens = None if model.top is None else model.lens(how.lens)
    observe(study, model, left, examples, lens=lens, progress=progress)


@contextmanager
def _or_skipped(study: Study, *stages: str) -> Iterator[None]:
    """Where a model or a text does not allow a stage, the study says so and goes on."""
    try:
        yield
    except (LensError, CorpusError) as error:
        for stage in stages:
            logger.warning("Left out: %s. %s", stage, error)
            study.skip(stage, str(error))


def _report(study: Study, progress: ProgressCallback) -> None:
    try:
        from ffscope.report.page import write_report
    except ModuleNotFoundError as missing:  # a machine with a GPU may have torch and no more
        logger.warning(
            "Left out: the report, since %s is not installed. `ffscope report` makes it on a machine that has it.",
            missing.name,
        )
        return
    write_report(study, progress=progress)


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
