"""Stages of other packages: the example in examples/plugin, installed for real, and plugins that cannot be used."""

import json
import logging
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tiny
from ffscope import read
from ffscope.cli import app
from ffscope.options.fields import Help
from ffscope.queries.layer import layer_rows
from ffscope.queries.search import SearchQuery, search
from ffscope.queries.tables import reading
from ffscope.report import catalogue
from ffscope.stages import registry
from ffscope.stages.stage import Column, Mean, Measure, Stage, Table
from ffscope.stages.validation import find_problem
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS
from studies import copy_of, make_study

PLUGIN = Path(__file__).parents[1] / "examples" / "plugin"
# Everything that the tests run in the environment with the plugin, in one process.
LOOK = """
import json, sys
from contextlib import nullcontext
from pathlib import Path
sys.path.insert(0, {tests!r})
from command_line import ffscope
from studies import undrawn
outputs = {{}}
for words in {commands!r}:
    with undrawn() if words[0] == "run" else nullcontext():
        result = ffscope(*words)
    assert result.returncode == 0, result.stderr
    outputs[" ".join(words)] = result.stdout
from explorer import app_of, client_of
from ffscope.report.catalogue import figures
with client_of(app_of(Path({study!r}))) as client:
    about = json.loads(client.get("/L0").text.split('id="about"')[1].split(">", 1)[1].split("</script>")[0])
    pages = {{path: client.get(path).json() for path in ("/index.json", "/L0.json", {memory!r})}}
    found = client.get("/search.json", params={{"one_document": "0.01..", "sort": "-one_document"}}).json()
print(json.dumps({{"outputs": outputs, "pages": pages, "about": about, "found": found, "figures": list(figures())}}))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An environment with the plugin and ffscope, made without the network; all other packages are this environment's."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(folder, system_site_packages=False, with_pip=False)
    own = next(folder.glob("lib/python*/site-packages"))
    here = [path for path in sys.path if path.endswith("site-packages")]
    (own / "here.pth").write_text("\n".join(here) + "\n")
    install = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(own)]
    subprocess.run([sys.executable, "-m", *install, str(PLUGIN)], check=True, capture_output=True, timeout=120)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def study(tokenizer, tmp_path_factory):
    return make_study(read(tiny.make("opt"), tokenizer, source="tiny/opt"), tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def installed(python, study, tokenizer, tmp_path_factory):
    """What ffscope prints and shows where the plugin is installed."""
    folder = tmp_path_factory.mktemp("run")
    tiny.make("opt").save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    small = "--top 4 --examples 10 --mutation-memories 1 --mutation-triggers 2 --effect-memories 0 --encoder model"
    commands = [
        "--help",
        "documents --help",
        f"documents {study.folder}",
        f"report {study.folder}",
        f"search {study.folder} --where one_document=0.01.. --sort one_document --json",
        f"search {study.folder} --where one_document=0.01..",
        f"run {folder}/model --corpus {study.settings['corpus']} --out {folder}/study {small}",
    ]
    code = LOOK.format(
        tests=str(Path(__file__).parent),
        commands=[command.split() for command in commands],
        study=str(study.folder),
        memory="/L{}/{}.json".format(*min(expected_shares(study))),
    )
    answers = json.loads(run_there(python, code))
    answers["outputs"] = [answers["outputs"][command] for command in commands]
    answers["run"] = folder / "study"
    return answers


def run_there(python, code):
    """What code prints in the environment with the plugin."""
    environment = {**os.environ, "PYTHONPATH": str(Path(registry.__file__).parents[2]), "COLUMNS": "120"}
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=200, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def expected_shares(study):
    """A plain recount."""
    document = {row["sentence"]: row["document"] for row in pq.read_table(study.path("sentences.parquet")).to_pylist()}
    stands: dict[tuple[int, int], list[int]] = {}
    for row in pq.read_table(study.path("triggers.parquet")).to_pylist():
        stands.setdefault((row["layer"], row["memory"]), []).append(document[row["sentence"]])
    return {name: max(map(some.count, some)) / len(some) for name, some in stands.items()}


@pytest.mark.ray
def test_an_installed_stage_is_everywhere(installed, study):
    top_help, stage_help, wrote, _, search_output, listed, *_ = installed["outputs"]
    assert "documents" in top_help
    assert "largest share of a memory's triggers" in stage_help
    assert "one_document.parquet" in wrote
    rows = pq.read_table(study.path("one_document.parquet")).to_pylist()
    shares = {(row["layer"], row["memory"]): row["share"] for row in rows}
    assert shares == pytest.approx(expected_shares(study))
    assert "Triggers of a memory that come from one document" in study.path("report.html").read_text()
    assert "one_document" in json.loads(study.path("summary.json").read_text())
    best = json.loads(search_output)["rows"][0]["measures"]["one_document"]
    assert best == pytest.approx(max(shares.values()))
    assert "one_document" in listed


@pytest.mark.ray
def test_an_installed_stage_runs_on_a_cluster(python, study, tmp_path):
    options = {"local": [], "ray": ["--engine", "ray", "--workers", "2"]}
    folders = {engine: copy_of(study, tmp_path / engine).folder for engine in options}
    commands = [["documents", str(folders[engine]), *words] for engine, words in options.items()]
    run_there(python, f"from ffscope.cli import app\nfor words in {commands!r}: app(words, standalone_mode=False)")
    tables = [(folder / "one_document.parquet").read_bytes() for folder in folders.values()]
    assert tables[0] == tables[1]


@pytest.mark.ray
def test_an_installed_stage_is_on_the_pages(installed, study):
    overview, layer, page = installed["pages"].values()
    assert "one_document" in overview["layers"][0]
    assert "one_document" in layer["columns"]
    assert "one_document" in [measure["name"] for measure in installed["about"]["measures"]]
    panel = next(panel for panel in page["panels"] if panel["stage"] == "documents")
    assert (panel["title"], panel["kind"]) == ("Documents", "text")
    assert "of its triggers come from document" in panel["data"]
    assert installed["found"]["count"] == len(expected_shares(study))
    assert installed["figures"][-1] == "one_document"
    assert overview["findings"][-1]["finding"] == "Triggers of a memory in one document, best layer"
    assert overview["figures"][-1]["how_to_read"].startswith("Bar: median")


@pytest.mark.ray
def test_a_run_includes_an_installed_stage(installed):
    manifest = json.loads((installed["run"] / "study.json").read_text())
    assert manifest["stages"]["documents"]["done"]


class Point(EntryPoint):
    """An entry point that loads what a test defines."""

    def load(self):
        loaded = ENTRY_POINTS[self.value]
        if isinstance(loaded, Exception):
            raise loaded
        return loaded


@dataclass(frozen=True)
class Needy:
    word: Annotated[str, Help("A word.")]


@dataclass(frozen=True)
class Second:
    top: Annotated[int, Help("Another top.")] = 3


def fresh(*measures, name="fresh", source="mine", column="int32", **more):
    """A valid stage, except for what a test changes."""
    table = Table("mine", "memory", (Column("layer", column),))
    return Stage(
        **{
            "name": name,
            "help": "Fresh.",
            "run": "m:f",
            "tables": (table,),
            "source": source,
            "measures": measures,
            **more,
        }
    )


def measure(name, kind="real", **more):
    instance = Measure(name, "M", "real", "mine.layer", "M", **more)
    object.__setattr__(instance, "kind", kind)  # of any kind, also those that the tests' type checker rejects
    return instance


ENTRY_POINTS = {
    "broken": RuntimeError("no such <thing>"),
    "other": "a text",
    "taken": fresh(name="values"),
    "command": fresh(name="serve"),
    "own": fresh(name="own"),
    "odd": fresh(name="Fresh; DROP"),
    "keyword": fresh(measure("class")),
    "no way": fresh(run=""),
    "two ways": fresh(rows="m:g"),
    "no table": fresh(run="", rows="m:g", tables=()),
    "table": fresh(tables=(Table("triggers", "row", (Column("layer", "int32"),)),)),
    "type": fresh(column="float16"),
    "plain options": fresh(options=(Point,)),
    "required": fresh(options=(Needy,)),
    "option": fresh(options=(Second,)),
    "measure": fresh(measure("fires")),
    "twice": fresh(measure("m"), measure("m")),
    "field": fresh(measure("sort")),
    "source": fresh(measure("m"), source="values"),
    "kind": fresh(measure("m", "number")),
    "choices": fresh(measure("m", "choice")),
    "mean": fresh(measure("m", mean=Mean("dead", "D", "D"))),
    "needs": fresh(needs=("nothing",)),
    "good": fresh(name="good", tables=(), needs=("later",)),
    "later": fresh(name="later", tables=()),
}
REASONS = {
    "broken": "it cannot be imported: RuntimeError: no such <thing>",
    "other": "expected a Stage, found str",
    "taken": "the name 'values' is already used",
    "command": "the name 'serve' is already used",
    "own": "the name 'own' is already used",
    "odd": "'Fresh; DROP' is not a valid name: expected lower-case letters, digits and underscores",
    "keyword": "'class' is not a valid name",
    "no way": "expected exactly one of rows, shards, run and observe",
    "two ways": "expected exactly one of rows, shards, run and observe",
    "no table": "it declares no table to write",
    "table": "its table 'triggers' belongs to another stage",
    "type": "its column 'layer' has type 'float16'",
    "plain options": "are not a dataclass",
    "required": "its option 'word' has no default",
    "option": "the name of its option 'top' is already used",
    "measure": "the name of its measure 'fires' is already used",
    "twice": "the name of its measure 'm' is already used",
    "field": "the name of its measure 'sort' is already used",
    "source": "its measures use the source 'values', which is not one of its tables",
    "kind": "its measure 'm' has kind 'number'",
    "choices": "its measure 'm' must have choices",
    "mean": "its measure 'm' has a mean",
    "needs": "it needs the stage 'nothing', which does not exist",
}


@pytest.mark.parametrize("value", REASONS)
def test_a_plugin_that_cannot_be_used_gets_a_sentence_and_stops_nothing(value, monkeypatch, caplog):
    points = [Point(name, name, registry.GROUP) for name in (value, "good", "later")]  # one of which needs the other
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    with caplog.at_level(logging.WARNING):
        rows = registry.stages.__wrapped__()
    assert list(rows)[-2:] == ["later", "good"]
    assert list(rows)[:-2] == list(registry.stages())
    assert [record.message for record in caplog.records if REASONS[value] in record.message]
    assert len(caplog.records) == 1


def test_no_plugin_can_hide_a_command():
    stages = registry.stages()
    for command in app.registered_commands:
        name = command.name or command.callback.__name__
        assert name in stages or f"the name {name!r} is already used" in str(find_problem(fresh(name=name), stages))


BROKEN = """
from ffscope.report.figure import Figure
from ffscope.search.example_pass import Observer


def rows(work):
    raise RuntimeError("no rows today")


def observer(work):
    return Failing()


class Failing(Observer):
    stage, settings = "watching", {}

    def rows(self, view):
        raise RuntimeError("nothing to see")


def series(source):
    return {"layer": [0], "series": {"x": {"value": [float("nan")]}}}


FIGURE = Figure(name="broken", title="Broken", series=series, sentence=lambda entry: "No.")
UNEXPLAINED = Figure(name="bare", title="Bare", series=series, sentence=lambda entry: "No.", chart=lambda entry: None)
UNFINISHED = Figure(
    name="odd", title="Odd", series=lambda source: {}, sentence=lambda entry: "No.", findings=lambda entry: ["one"]
)
"""


def test_a_stage_that_fails_does_not_stop_the_others(tokenizer, tmp_path, monkeypatch, request, caplog):
    (tmp_path / "broken_stage.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    table = Table("watching", "example", (Column("example", "int32"),))
    names = ("FIGURE", "UNEXPLAINED", "UNFINISHED", "rows")
    figures = tuple(f"broken_stage:{name}" for name in names)
    bad = Stage(name="bad", help="Fails.", rows="broken_stage:rows", figures=figures)
    watching = Stage(name="watching", help="Fails.", observe="broken_stage:observer", tables=(table,))
    rows = {**registry.stages(), "bad": bad, "watching": watching}
    monkeypatch.setattr("ffscope.pipeline.stages_in_run", lambda: [row for row in rows.values() if row.in_run])
    monkeypatch.setattr("ffscope.report.catalogue.stages", lambda: rows)
    monkeypatch.setitem(SCHEMAS, table.file, pa.schema([("example", pa.int32())]))
    catalogue.figures.cache_clear()
    request.addfinalizer(catalogue.figures.cache_clear)
    study = make_study(read(tiny.make("opt"), tokenizer, source="tiny/opt"), tmp_path)
    entries = study.manifest["stages"]
    assert (entries["bad"]["done"], entries["bad"]["why"]) == (False, "RuntimeError: no rows today")
    assert (entries["watching"]["done"], entries["watching"]["why"]) == (False, "RuntimeError: nothing to see")
    assert all(study.has(name) for name in ("composition", "refinement", "patterns", "report"))
    assert "The figure broken is left out: ValueError" in caplog.text
    assert "UNEXPLAINED of the stage bad is left out: it has a chart and no how_to_read" in caplog.text
    assert "The figure odd is left out: TypeError: expected a Finding, found str" in caplog.text
    assert "rows of the stage bad is left out: expected a Figure, found function" in caplog.text
    assert {"broken", "bare", "odd"}.isdisjoint(json.loads(study.path("summary.json").read_text()))


def test_measures_may_be_expressions_and_a_broken_one_is_left_out(study, monkeypatch, caplog):
    """Bare comparisons and whole decimals are what people write; a column that is not there must not cost the others."""
    table = Table("memories", "memory", ())
    over = (
        Measure("often", "O", "answer", "memories.fired > 3 OR memories.fired < 2", "O", mean=Mean("often", "O", "O")),
        Measure("half", "H", "real", "1.5", "H"),
        Measure("lost", "L", "real", "memories.nothing", "L"),
    )
    stage = Stage(name="triggers_too", help="H.", run="m:f", tables=(table,), source="memories", measures=over)
    rows = {**registry.measures(), **{measure.name: (stage, measure) for measure in over}}
    monkeypatch.setattr("ffscope.queries.measures.measures", lambda: rows)
    monkeypatch.setattr("ffscope.queries.layer.measures", lambda: rows)
    monkeypatch.setattr("ffscope.queries.search.measures", lambda: rows)
    monkeypatch.setattr("ffscope.queries.measures.stages", lambda: {**registry.stages(), "triggers_too": stage})
    has = Study.has
    with reading(study.folder) as tables:
        monkeypatch.setattr(Study, "has", lambda self, name: name == "triggers_too" or has(self, name))
        fired = dict(tables.rows("SELECT (layer, memory)::VARCHAR, fired > 3 OR fired < 2 FROM memories"))
        results = search(tables, SearchQuery.parse({"often": "no", "half": "1..2"}))
        assert results.count == list(fired.values()).count(False)
        assert all("lost" not in match.measures for match in results.rows)
        assert {type(match.measures["half"]) for match in results.rows} <= {float}
        assert 0 <= layer_rows(tables)[0]["often"] <= 1
    assert "The measure lost of the stage triggers_too is left out" in caplog.text
