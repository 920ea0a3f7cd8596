"""A stage as a row: what it needs, what it leaves behind, what runs it, and how its results are shown."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

from ffscope.errors import InputError
from ffscope.options.bag import Options
from ffscope.options.fields import StudyOptions
from ffscope.progress import ProgressCallback, no_progress

if TYPE_CHECKING:
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
    """A column of a table: its name, its type, and what it holds where the name does not say."""

    name: str
    type: str
    help: str = ""


@dataclass(frozen=True)
class Table:
    """A parquet file of the study. `row` says what one row stands for."""

    name: str
    row: str
    columns: tuple[Column, ...]
    help: str = ""

    @property
    def file(self) -> str:
        """Its name in the study's folder."""
        return f"{self.name}.parquet"


@dataclass(frozen=True)
class Mean:
    """A measure's mean over a layer's memories, as the overview shows it."""

    name: str
    label: str
    help: str


@dataclass(frozen=True)
class Measure:
    """Something known of a memory: a column, a filter of searches, a key to sort by. It is declared here and nowhere else.

    `sql` is an expression over the stage's `source`, under that table's own name. Of a token it gives the id. Of a choice, "none"
    among `choices` stands for NULL.
    """

    name: str
    label: str
    kind: Kind
    sql: str
    help: str
    unit: str = ""  # beside the field in a form
    short: str = ""  # over a column, where the label is too long
    width: int | float = 6  # of a column, in rem
    digits: int | None = None  # of a share, after the point; as many as it needs by default
    rising: bool = False  # whether the smaller comes first when sorted
    choices: tuple[str, ...] = ()
    shown: tuple[Place, ...] = ("layer", "search", "terminal")
    filtered: bool = False  # whether the layer page has a filter for it
    mean: Mean | None = None
    histogram: tuple[str, Literal["linear", "log"]] | None = None  # on the layer page: its title and its scale


@dataclass(frozen=True)
class Panel:
    """A part of the memory page or the layer page. `data` names what fills it: f(tables, memory or layer), None for nothing.

    What that gives, by kind, as JSON has it (lists, dictionaries, text, numbers, None):

    - table: {"heads": [...], "kinds": [...], "rows": [[...], ...]}; `kinds` says of each column how its cells are drawn: text,
      token, memory (a name, which becomes a link), count, real, share, or "signed share". The first cell of a row is its head.
      "more", a table with a "title" besides, stands folded below it.
    - bars and tokens: [[label or token, number], ...].
    - histogram: {"edges": [...], "counts": [...]}, with one edge more than counts.
    - figure: a vega-lite specification.
    - text: a string.

    All of it is shown as plain text, so text of a corpus may be given as it is.
    """

    title: str
    kind: Literal["table", "bars", "histogram", "tokens", "figure", "text"]
    data: str
    help: str = ""


@dataclass(frozen=True)
class Work:
    """What a stage is given when it runs."""

    study: "Study"
    options: Options
    loaded: "MemoryModel | None" = None
    progress: ProgressCallback = no_progress
    device: str = "auto"

    @property
    def model(self) -> "MemoryModel":
        """The model, for a stage that needs one."""
        if self.loaded is None:
            raise InputError("This stage needs the studied model. Load it, and give it to the stage.")
        return self.loaded


@dataclass(frozen=True)
class Stage:
    """One question asked of a model. It runs in one of three ways.

    `rows`: f(work) gives the columns of its one table; checks, writing and the manifest are done for it.
    `run`: f(work) does all of it, `study.finish` included; a string it returns is printed.
    `observe`: f(work) gives an Observer of the pass over the examples, which all such stages share.
    """

    name: str
    help: str
    needs: tuple[str, ...] = ("triggers",)
    after: tuple[str, ...] = ()  # stages that come before this one where both are run
    tables: tuple[Table, ...] = ()
    options: tuple[type, ...] = ()
    rows: str = ""
    run: str = ""
    observe: str = ""
    model: Literal["needed", "optional", "none"] = "needed"
    needs_model: str = ""  # of an optional model: f(study, options) says whether it must be loaded
    check: str = ""  # f(options) raises for what cannot work, before anything is loaded
    command: str = "own"  # "own", "" for none, or the stage whose command has its options too
    wanted: Callable[[Options], bool] | None = None  # of a stage in another's command: whether it is asked for
    in_run: bool = True  # whether `ffscope run` includes it
    source: str = ""  # the table or view, by layer and memory, that its measures are over
    measures: tuple[Measure, ...] = ()
    held: Callable[[dict[str, Any]], dict[str, Any]] | None = None  # options that its own entry in study.json holds
    figures: tuple[str, ...] = ()
    no_figure: str = ""  # the reason, where it has none
    memory_panels: tuple[Panel, ...] = ()
    layer_panels: tuple[Panel, ...] = ()
    missing: str = ""  # what a page says where it has not been done

    @property
    def table(self) -> Table | None:
        """The table that shows whether it has been done: that of its own name, or else its first."""
        return next((table for table in self.tables if table.name == self.name), next(iter(self.tables), None))

    def settings(self, options: Options) -> dict[str, Any]:
        """What the manifest keeps of the options."""
        kinds = [kind for kind in self.options if issubclass(kind, StudyOptions)]
        return {name: value for kind in kinds for name, value in vars(options(kind)).items()}


def resolve(name: str) -> Any:
    """What a row names as "module:name"."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
