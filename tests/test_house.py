"""Rules of the house that matter enough to be tests."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ffscope

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ffscope"
MODULES = sorted(path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".") for path in SOURCE.rglob("*.py"))
READING_SIDE = ["duckdb", "sentencex", "altair", "vl_convert", "fastapi", "uvicorn", "jinja2"]
TORCH_SIDE = [
    name
    for name in MODULES
    if name.split(".")[0]
    in (
        "models",
        "analysis",
        "cli",
        "corpus",
        "live",
        "search",
        "options",
        "patterns",
        "pipeline",
        "study",
    )
    and name not in ("search.fused", "study.results")  # which is for GPUs that have Triton, and which reads
]


def imports(module: str) -> set[str]:
    """What a module imports when it is itself imported."""
    tree = ast.parse((SOURCE / (module.replace(".", "/") + ".py")).read_text())
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names} | {
        node.module or "" for node in top if isinstance(node, ast.ImportFrom)
    }


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("analysis.")])
def test_no_analysis_imports_another(module):
    assert not any(name.startswith("ffscope.analysis") for name in imports(module))


def test_only_models_knows_transformers():
    users = [name for name in MODULES if any(found.split(".")[0] == "transformers" for found in imports(name))]
    assert all(name.startswith("models.") for name in users)


def test_no_branch_over_families():
    for module in MODULES:
        text = (SOURCE / (module.replace(".", "/") + ".py")).read_text()
        assert not re.search(r"model_type\s*(==|!=)|model_type\s+in\s*[\[({]", text), f"{module}: a missing column"


def test_the_torch_side_imports_without_the_reading_side_and_without_jaxtyping():
    """As on a GPU machine that has torch, transformers, pyarrow, typer and rich alone."""
    names = [f"ffscope.{name}".removesuffix(".__init__") for name in TORCH_SIDE]
    absent = [*READING_SIDE, "jaxtyping", "beartype", "gguf"]
    code = f"""
import sys, importlib
for name in {absent!r}: sys.modules[name] = None
for name in {names!r}: importlib.import_module(name)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


def test_a_study_is_read_without_torch():
    code = """
import sys
for name in ("torch", "transformers", "triton"): sys.modules[name] = None
import ffscope.queries, ffscope.study.folder, ffscope.cli, ffscope.cli.output, ffscope.study.results, ffscope.report.page
import ffscope.analysis.agreement, ffscope.annotating.step, ffscope.annotating.terminal, ffscope.labelling.labeller
import ffscope.patterns.semantic, ffscope.patterns.describe, ffscope.web.serving, ffscope.web.export
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


def test_all_is_complete_and_true():
    assert sorted(dir(ffscope)) == sorted([*ffscope.__all__, "__version__"])
    assert set(ffscope._LATER) <= set(ffscope.__all__)
    assert all(getattr(ffscope, name) is not None for name in ffscope.__all__)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = ffscope.lode


def test_the_readme_shows_every_command():
    from ffscope.cli import app

    readme = (ROOT / "README.md").read_text()
    for command in app.registered_commands:
        assert f"ffscope {command.callback.__name__}" in readme


def test_files_and_functions_stay_small():
    for path in SOURCE.rglob("*.py"):
        lines = path.read_text().splitlines()
        assert len(lines) <= 400, f"{path.name} has {len(lines)} lines: look for a seam"
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 45, f"{path.name}: {node.name} is long"


def test_sql_is_in_queries_alone():
    """The web asks `queries`; a statement elsewhere would be one more place that knows the tables."""
    for module in MODULES:
        if module.startswith("web."):
            text = (SOURCE / (module.replace(".", "/") + ".py")).read_text()
            assert not re.search(r"\bSELECT\b|\bFROM memories\b", text), module
