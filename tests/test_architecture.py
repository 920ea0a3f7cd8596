"""Rules of the architecture that matter enough to be tests."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import ffscope
from ffscope.options.fields import option_fields
from ffscope.stages.documentation import file_lines
from ffscope.stages.registry import measures, stages
from ffscope.stages.stage import resolve

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ffscope"
MODULES = sorted(path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".") for path in SOURCE.rglob("*.py"))
READING_SIDE = ["duckdb", "sentencex", "simplemma", "altair", "vl_convert", "fastapi", "uvicorn", "jinja2"]
# From the bottom up. A module imports its own layer and those below it, inside functions too.
LAYERS = [
    {"errors"},
    {
        "ahead",
        "axes",
        "bundled",
        "cancellation",
        "cases",
        "edit_command",
        "glossary",
        "html",
        "memory_name",
        "panics",
        "personal",
        "progress",
        "tokens",
        "trace_types",
    },
    {"options"},
    {"stages"},
    {"study"},
    {"corpus"},
    {"models"},
    {"search"},
    {"engines"},
    {"comparison", "editing", "effects", "leaks", "memory_types", "patterns", "pruning", "translators"},
    {"queries"},
    {"annotating", "labelling"},
    {"analysis", "report"},
    {"differences", "live", "pipeline", "study.results"},
    {"web"},
    {"cli"},
    {"__init__", "__main__"},
]
# Modules that need nothing but the lowest layers, and may be used from anywhere above these.
LEAVES = {"models.lenses", "patterns.pattern", "queries.disk_set", "queries.labeller_answers", "queries.annotations"}
# Packages that compute; all others work without torch.
TORCH = {
    *("analysis", "comparison", "editing", "effects", "engines", "leaks", "live"),
    *("memory_types", "models", "pruning", "search", "translators"),
}
TORCH_MODULES = {"patterns.embed_words", "web.model_threads"}
SQL = re.compile(r"\b(SELECT\s|INSERT\s|CREATE (TABLE|VIEW|TRIGGER)|DELETE FROM|PRAGMA\s|UPDATE \w+ SET|LEFT JOIN)")


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((SOURCE / (module.replace(".", "/") + ".py")).read_text())


def without_type_checking(node: ast.AST):
    """Every node that runs, without imports for type checkers only."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from without_type_checking(child)


@cache
def imports(module: str, *, everywhere: bool = True) -> frozenset[str]:
    """What a module imports: everywhere in it, or when it is itself imported."""
    nodes = list(without_type_checking(tree(module))) if everywhere else tree(module).body
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if is_module(name) else str(node.module) for name in inside}
    return frozenset(names)


def is_module(name: str) -> bool:
    short = name.removeprefix("ffscope.")
    return name.startswith("ffscope.") and (short in MODULES or f"{short}.__init__" in MODULES)


def layer_of(module: str) -> int:
    name = module.removeprefix("ffscope.")
    known = {part for names in LAYERS for part in names}
    name = name if name in known else name.split(".")[0]
    return next(number for number, names in enumerate(LAYERS) if name in names)


def own(names) -> list[str]:
    return [name.removeprefix("ffscope.") for name in names if name.startswith("ffscope.")]


def is_leaf(name: str) -> bool:
    return name == "engines" or any(name == leaf or name.startswith(f"{leaf}.") for leaf in LEAVES)


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down_the_layers(module):
    above = [name for name in own(imports(module)) if layer_of(name) > layer_of(module) and not is_leaf(name)]
    assert not above, f"{module} is below {above}"


@pytest.mark.parametrize("leaf", sorted(LEAVES))
def test_leaves_need_the_lowest_layers_alone(leaf):
    module = leaf if leaf in MODULES else f"{leaf}.__init__"
    assert all(layer_of(name) <= layer_of("study") or is_leaf(name) for name in own(imports(module, everywhere=False)))


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("analysis.")])
def test_no_analysis_imports_another(module):
    assert not any(name.startswith("analysis") for name in own(imports(module)))


def test_only_models_knows_transformers():
    users = [name for name in MODULES if any(part.split(".")[0] == "transformers" for part in imports(name))]
    assert all(name.startswith("models.") or name == "cli.progress_output" for name in users)  # for its messages


def test_no_code_branches_on_families():
    for module in MODULES:
        text = (SOURCE / (module.replace(".", "/") + ".py")).read_text()
        assert not re.search(r"model_type\s*(==|!=)|model_type\s+in\s*[\[({]", text), f"{module}: a missing column"


def test_torch_is_imported_where_it_is_stated():
    users = [name for name in MODULES if any(part.split(".")[0] in ("torch", "safetensors") for part in imports(name))]
    assert {name for name in users if name.split(".")[0] not in TORCH} <= TORCH_MODULES


def test_sql_is_written_in_queries_alone():
    for module in MODULES:
        if module.startswith("queries."):
            continue
        docs = {id(node.body[0].value) for node in ast.walk(tree(module)) if has_docstring(node)}
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                assert not SQL.search(node.value), f"{module}: {node.value[:60]!r}"


def has_docstring(node) -> bool:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, kinds) and ast.get_docstring(node) is not None


def test_locals_are_not_used_as_a_dictionary():
    for module in MODULES:
        calls = [node for node in ast.walk(tree(module)) if isinstance(node, ast.Call)]
        assert not [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "locals"], module


def test_the_torch_side_imports_without_the_reading_side_and_without_jaxtyping():
    """As on a GPU machine that has torch, transformers, pyarrow, typer and rich alone."""
    there = {*TORCH, "cli", "corpus", "options", "patterns", "pipeline", "stages", "study"}
    without = ("effects.fused_sums", "search.fused", "study.results")  # two are for GPUs that have Triton, one reads
    names = [f"ffscope.{name}".removesuffix(".__init__") for name in MODULES if name.split(".")[0] in there]
    names = [name for name in names if name.removeprefix("ffscope.") not in without]
    absent = [*READING_SIDE, "jaxtyping", "beartype", "gguf"]
    code = f"""
import sys, importlib
for name in {absent!r}: sys.modules[name] = None
for name in {names!r}: importlib.import_module(name)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


def test_a_study_is_read_without_torch():
    reading = [
        f"ffscope.{name}".removesuffix(".__init__")
        for name in MODULES
        if name.split(".")[0] not in {*TORCH, "differences", "pipeline", "__main__"} and name not in TORCH_MODULES
    ]
    code = f"""
import sys, importlib
for name in ("torch", "transformers", "triton"): sys.modules[name] = None
for name in {reading!r} + ["ffscope.analysis.agreement"]: importlib.import_module(name)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


def test_rows_of_stages_import_neither_torch_nor_duckdb():
    code = """
import sys
for name in ("torch", "transformers", "duckdb", "pyarrow", "numpy", "altair"): sys.modules[name] = None
from ffscope.stages.registry import stages
stages()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


def test_all_is_complete_and_true():
    assert sorted(dir(ffscope)) == sorted([*ffscope.__all__, "__version__"])
    assert set(ffscope._LAZY) <= set(ffscope.__all__)
    assert all(getattr(ffscope, name) is not None for name in ffscope.__all__)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = ffscope.lode


@pytest.mark.parametrize("name", ffscope.__all__)
def test_every_public_name_is_documented(name):
    assert (getattr(ffscope, name).__doc__ or "").strip()


@pytest.mark.parametrize("stage", stages().values(), ids=lambda stage: stage.name)
def test_every_stage_says_what_it_is(stage):
    assert stage.help.endswith(".")
    assert stage.figures or stage.no_figure.endswith(".")
    assert stage.missing.endswith(".") or stage.command != "own" or stage.optional
    assert sum(map(bool, (stage.run, stage.rows, stage.shards, stage.observe))) == 1 or stage.name in (
        "sentences",
        "triggers",
        "examples",
    )
    for table in stage.tables:
        assert table.row
        assert len({column.name for column in table.columns}) == len(table.columns)
    for kind in stage.options:
        for field in option_fields(kind):
            assert field.help.text.endswith(".")
    names = [stage.run, stage.rows, stage.shards, stage.observe, stage.check, stage.needs_model, *stage.figures]
    names += [panel.data for panel in (*stage.memory_panels, *stage.layer_panels)]
    for name in filter(None, names):
        assert resolve(name) is not None


def test_every_measure_says_what_it_is():
    for name, (stage, measure) in measures().items():
        assert measure.label, name
        assert measure.help, name
        assert stage.source, name
        assert bool(measure.choices) == (measure.kind == "choice"), name


def test_the_contract_lists_the_files_as_the_stages_declare_them():
    lines = (ROOT / "docs" / "contract.md").read_text().splitlines()
    files = [line for line in lines if line.startswith("| ") and ".parquet | " in line]
    assert files == file_lines(), "run docs/study_files.py"


def test_files_and_functions_stay_small():
    for module in MODULES:
        lines = (SOURCE / (module.replace(".", "/") + ".py")).read_text().splitlines()
        assert len(lines) <= 400, f"{module} has {len(lines)} lines: look for a seam"
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno < 45, f"{module}: {node.name} is long"


# Names that say nothing of what they hold.
VAGUE = {"found", "one", "said", "asked", "made", "told", "taken", "given"}


def bound_names(node: ast.AST):
    """The names that a piece of code gives to variables, arguments and functions."""
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        elif isinstance(child, ast.arg):
            yield child.arg
        elif isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield child.name


@pytest.mark.parametrize("folder", ["src", "tests", "bench", "docs", "examples"])
def test_names_say_what_they_hold(folder):
    keys_of_json = {
        "src/ffscope/annotating/drafts.py:made",
        "src/ffscope/tokens.py:asked",
        "src/ffscope/web/pages/annotate.py:made",
        "src/ffscope/web/pages/search.py:asked",
    }
    vague = {
        f"{path.relative_to(ROOT)}:{name}"
        for path in (ROOT / folder).rglob("*.py")
        for name in bound_names(ast.parse(path.read_text()))
        if name in VAGUE
    }
    assert vague <= keys_of_json


def test_names_in_scripts_say_what_they_hold():
    names = "|".join(VAGUE)
    vague = re.compile(rf"\b(?:const|let|function)\s+[\[{{]?({names})\b|[(\[{{,]\s*({names})\s*[\]}},)]+\s*=>")
    assert not [
        f"{path.name}: {match[0]}" for path in SOURCE.rglob("*.js") for match in vague.finditer(path.read_text())
    ]
