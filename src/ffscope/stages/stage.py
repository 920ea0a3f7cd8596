"""The declaration of a stage: what it needs, the tables it writes, what runs it, and how its results are shown."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

from ffscope.models.lenses import ChosenLens, choose_lens
from ffscope.options.analysis import LensOptions
from ffscope.options.fields import StudyOptions
from ffscope.options.option_set import Options
from ffscope.progress import ProgressCallback, no_progress

if TYPE_CHECKING:
    from ffscope.engines.base import Engine
    from ffscope.models.info import ModelInfo
    from ffscope.models.memory_model import MemoryModel
    from ffscope.study.folder import Study

INT, INT64, REAL, DOUBLE, TEXT, BOOL = "int32", "int64", "float32", "float64", "string", "bool"
INTS, REALS = "list<int32>", "list<float32>"
TYPES = (INT, INT64, REAL, DOUBLE, TEXT, BOOL, INTS, REALS)
Place = Literal["layer", "search", "terminal"]
Kind = Literal["real", "share", "count", "answer", "choice", "token", "text"]
KINDS = get_args(Kind)


@dataclass(frozen=True)
class Column:
    """A column of a table; `help` explains it if the name does not."""

    name: str
    type: str
    help: str = ""


@dataclass(frozen=True)
class Table:
    """A parquet file of the study. `row` says what one row is."""

    name: str
    row: str
    columns: tuple[Column, ...]
    help: str = ""
    optional: bool = False  # whether a finished stage may be without it

    @property
    def file(self) -> str:
        """Its name in the study's folder."""
        return f"{self.name}.parquet"


@dataclass(frozen=True)
class Mean:
    """The mean of a measure over a layer's memories, shown on the overview page."""

    name: str
    label: str
    help: str


@dataclass(frozen=True)
class Measure:
    """A quantity of each memory: a table column, a search filter and a sort key.

    `sql` is an expression over the stage's `source`, which it names as a table. For a token it gives the id. For a choice, "none"
    in `choices` stands for NULL.
    """

    name: str
    label: str
    kind: Kind
    sql: str
    help: str
    unit: str = ""  # shown next to the field in forms
    short: str = ""  # column head, if the label is too long
    width: int | float = 6  # of a column, in rem
    digits: int | None = None  # decimals of a share; by default as many as needed
    rising: bool = False  # sort ascending
    choices: tuple[str, ...] = ()
    shown: tuple[Place, ...] = ("layer", "search", "terminal")
    filtered: bool = False  # the layer page has a filter for it
    mean: Mean | None = None
    histogram: tuple[str, Literal["linear", "log"]] | None = None  # on the layer page: title and scale


@dataclass(frozen=True)
class Panel:
    """A panel on the memory page or the layer page. `data` names a function f(tables, memory or layer); None hides the panel.

    The function returns JSON-compatible data (lists, dictionaries, strings, numbers, None), depending on `kind`:

    - table: {"heads": [...], "kinds": [...], "rows": [[...], ...]}; `kinds` has the type of each column: text, token, memory (a
      name, shown as a link), count, real, share, or "signed share". The first cell of a row is its head. An optional "more" is
      a second table, with a "title", that is collapsed below the first.
    - bars and tokens: [[label or token, number], ...].
    - histogram: {"edges": [...], "counts": [...]}, with one more edge than counts.
    - figure: a vega-lite specification.
    - text: a string.

    Strings are shown as plain text, so text from a corpus needs no escaping.
    """

    title: str
    kind: Literal["table", "bars", "histogram", "tokens", "figure", "text"]
    data: str
    help: str = ""


@dataclass(frozen=True)
class Work:
    """The study and options that a stage runs with, and the engine that runs its model."""

    study: "Study"
    options: Options
    engine: "Engine"
    progress: ProgressCallback = no_progress
    device: str = "auto"

    @property
    def model(self) -> "MemoryModel":
        """The model, for a stage that needs it in this process. An engine that runs it elsewhere loads it here too."""
        return self.engine.model

    @property
    def lens(self) -> ChosenLens:
        """The lens that vectors are read through. Raises if it must be learned first."""
        return choose_lens(self.options(LensOptions).lens, self.study.folder)

    @property
    def info(self) -> "ModelInfo":
        """The model's description, for a stage whose shards run it."""
        return self.engine.info


@dataclass(frozen=True)
class Stage:
    """One stage of a study. It is run by exactly one of four functions.

    `rows`: f(work) returns the columns of its only table; ffscope checks and writes them and updates study.json.
    `shards`: f(work) returns the Shards of its only table; ffscope computes them, on all machines of a cluster where there is one.
    `run`: f(work) does everything, including `study.finish`; a string it returns is printed.
    `observe`: f(work) returns an Observer of the pass over the examples, which all such stages share.
    """

    name: str
    help: str
    needs: tuple[str, ...] = ("triggers",)
    after: tuple[str, ...] = ()  # stages that run before this one if both are run
    tables: tuple[Table, ...] = ()
    options: tuple[type, ...] = ()
    rows: str = ""
    shards: str = ""
    run: str = ""
    observe: str = ""
    model: Literal["needed", "optional", "none"] = "needed"
    needs_model: str = ""  # if `model` is optional: f(study, options) says whether to load it
    check: str = ""  # f(options) raises for invalid options before anything is loaded
    command: str = "own"  # "own", "" for none, or the stage whose command also has this stage's options
    takes_model: bool = False  # its command is `ffscope NAME MODEL --study DIR`, not `ffscope NAME DIR`
    wanted: Callable[[Options], bool] | None = None  # in another stage's command: whether to run it
    in_run: bool = True  # whether `ffscope run` includes it
    source: str = ""  # the table or view, keyed by layer and memory, of its measures
    measures: tuple[Measure, ...] = ()
    stored_options: Callable[[dict[str, Any]], dict[str, Any]] | None = None  # options from its entry in study.json
    figures: tuple[str, ...] = ()
    no_figure: str = ""  # the reason, if it has none
    memory_panels: tuple[Panel, ...] = ()
    layer_panels: tuple[Panel, ...] = ()
    missing: str = ""  # shown on pages if the stage has not been run

    @property
    def table(self) -> Table | None:
        """The stage's main table: the one with its name, or else its first."""
        return next((table for table in self.tables if table.name == self.name), next(iter(self.tables), None))

    @property
    def optional(self) -> bool:
        """Whether a study is complete without it. Its command then needs more than the study."""
        return self.takes_model or not (self.command or self.in_run)

    def settings(self, options: Options) -> dict[str, Any]:
        """The options that study.json stores."""
        kinds = [kind for kind in self.options if issubclass(kind, StudyOptions)]
        return {name: value for kind in kinds for name, value in vars(options(kind)).items()}


def resolve(name: str) -> Any:
    """The object named as "module:name"."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
