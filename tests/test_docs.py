"""The documentation: its limits, links, generated parts, and its code blocks, which are run."""

import json
import re
import shlex
import shutil
from contextlib import chdir
from pathlib import Path

import pytest
import yaml

import blocks
import generated
import notebook_links
import readme
import tiny
from ffscope import bundled
from studies import write_corpus

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
RUN_PAGES = [page for page in PAGES if DOCS in page.parents]
FAIRSEQ = Path(__file__).parent / "golden" / "fairseq" / "paper"


def page_name(page):
    return str(page.relative_to(ROOT))


# The README


def test_the_readme_fits_one_screen_and_some():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 130
    assert max(map(len, lines)) <= 120
    first_screen = "\n".join(lines[:20])
    assert "![" in first_screen
    assert "make demo" in first_screen


def test_the_readmes_results_are_those_of_the_summary():
    text = (ROOT / "README.md").read_text()
    assert text == readme.updated(text), "run docs/readme.py"


def test_contributing_is_short():
    lines = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    assert len(lines) <= 90
    assert max(map(len, lines)) <= 160


# Links


def anchors(page):
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    text = blocks_removed(page.read_text())
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


def blocks_removed(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", blocks_removed(page.read_text())):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target) or "generated:" in target.read_text(), f"{page.name}: {link}"


def test_every_page_is_in_the_navigation():
    yaml = pytest.importorskip("yaml")
    config = yaml.load((ROOT / "mkdocs.yml").read_text(), yaml.SafeLoader)

    def files(entry):
        if isinstance(entry, str):
            return [entry]
        return [file for part in (entry.values() if isinstance(entry, dict) else entry) for file in files(part)]

    assert sorted(files(config["nav"])) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


# Commands and options that the documentation names


def named_commands(page):
    """Commands of ffscope in console blocks and in running text."""
    text = page.read_text()
    for block in blocks.blocks(page):
        yield from (command for command in block.commands if command.startswith("ffscope "))
    yield from re.findall(r"`(ffscope [a-z][^`]*)`", blocks_removed(text))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_commands_and_options_exist(page):
    commands = generated.commands()
    commands_of_the_plugin = {"documents": set()}
    for line in named_commands(page):
        _, name, *words = shlex.split(line.replace("…", "..."), comments=True)
        options = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        known = commands_of_the_plugin.get(name) if name not in commands else generated.option_names(commands[name])
        assert known is not None, f"{page.name}: {line}"
        assert options <= known, f"{page.name}: {line} has no {options - known}"


OPTIONS_OF_OTHER_PROGRAMS = {"--version", "--strict", "--no-deps", "--add-bos-token"}


def options_of_scripts():
    """The options of the scripts that measure and illustrate, as their sources name them."""
    scripts = [path for folder in ("bench", "docs", "examples") for path in (ROOT / folder).rglob("*.py")]
    return {option for path in scripts for option in re.findall(r"[\"'](--[a-z][a-z-]+)[\"']", path.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_options_in_running_text_exist(page):
    known = OPTIONS_OF_OTHER_PROGRAMS | options_of_scripts()
    known |= {name for command in generated.commands().values() for name in generated.option_names(command)}
    for code in re.findall(r"`([^`\n]+)`", blocks_removed(page.read_text())):
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", code):
            if not re.match(r"(python|pip|make|git) ", code):
                assert option in known, f"{page.name}: {option}"


def test_the_reference_has_every_command_option_and_public_name():
    import ffscope

    reference = generated.command_reference()
    for name, command in generated.commands().items():
        assert f"## {name}\n" in reference
        assert all(option in reference for option in generated.option_names(command) - {"-h", "--help", "--debug"})
    assert {f"::: ffscope.{name}" for name in ffscope.__all__} <= set(generated.python_reference().splitlines())
    assert "### triggers.parquet" in generated.table_reference()


def test_generated_parts_exist():
    for page in PAGES:
        for part in re.findall(r"<!-- generated: (\w+) -->", page.read_text()):
            assert generated.PARTS[part]()


# Code blocks


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, tokenizer):
    """A folder with what the pages name: a tiny model and text, a study of it, a fairseq checkpoint."""
    folder = tmp_path_factory.mktemp("docs")
    tiny.make("opt").save_pretrained(folder / "my-model")
    tokenizer.save_pretrained(folder / "my-model")
    write_corpus(folder / "my-text.jsonl")
    write_corpus(folder / "my-held-out.jsonl", documents=5)
    (folder / "texts").mkdir()
    (folder / "texts" / "one.txt").write_text("A cat sat on the mat. It saw a dog and a bird.\n" * 3)
    shutil.copytree(FAIRSEQ, folder / "adaptive_lm_wiki103.v2")
    words = " ".join((FAIRSEQ / "dict.txt").read_text().split()[::2][:20])
    articles = (f" = Title {number} = \n\n {words} {number} . \n\n" for number in range(40))
    (folder / "wiki.train.tokens").write_text("".join(articles))
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        patch.setattr("ffscope.report.drawn_figure.vl_convert", PlainDrawing)
        patch.setattr("ffscope.report.figure_page.vega_bundle", str)
        patch.setattr("ffscope.analysis.patterns.find_encoder", lambda encoder, device: None)  # the model's own vectors
        patch.setenv("FFSCOPE_CACHE", str(folder / "cache"))
        small = "--examples 40 --mutation-memories 4 --mutation-triggers 5 --effect-memories 3 --exact-examples 4"
        blocks.run_command(f"ffscope run ./my-model --corpus my-text.jsonl --out study {small}")
        yield folder


class PlainDrawing:
    """Replaces vl_convert, which takes seconds for a report; tests/test_figures.py draws."""

    vegalite_to_png = staticmethod(lambda spec, scale: b"")
    vegalite_to_pdf = staticmethod(lambda spec: b"")
    vegalite_to_svg = staticmethod(lambda spec: "<svg></svg>")


def is_run(block):
    return block.language in ("console", "python") and not block.not_run and not block.mark


def pages_that_run():
    """The pages with blocks that are run; a page that starts Ray needs all cores."""
    for page in RUN_PAGES:
        rows = [block for block in blocks.blocks(page) if is_run(block)]
        if rows:
            marks = [pytest.mark.ray] if any("--engine ray" in block.text for block in rows) else []
            yield pytest.param(page, marks=marks, id=page_name(page))


@pytest.mark.parametrize("page", list(pages_that_run()))
def test_the_blocks_of_a_page_run(page, workplace):
    names = {}
    for block in filter(is_run, blocks.blocks(page)):
        blocks.run_block(block, names)


def test_the_readmes_python_runs(workplace):
    (block,) = (block for block in blocks.blocks(ROOT / "README.md") if block.language == "python")
    assert len([line for line in block.lines if line]) == 6
    names = {"L25.168": "L1.2", "demo-study": "study", "smollm2-135m": "./my-model"}
    exec(re.sub("|".join(names), lambda match: names[match[0]], block.text), {})


@pytest.mark.parametrize("page", RUN_PAGES, ids=page_name)
def test_blocks_that_are_not_run_say_why(page):
    for block in blocks.blocks(page):
        assert block.language in ("console", "python", "text", "toml", ""), str(block)
        if block.language == "console":
            assert block.commands, f"{block}: a command begins with `$ `"
            others = [command for command in block.commands if not command.startswith("ffscope ")]
            assert block.not_run or not others, f"{block}: {others} is not run; say why"


@pytest.mark.slow
@pytest.mark.bundled
@pytest.mark.timeout(1800)
def test_the_tutorials_outputs_are_those_of_the_program(tmp_path, monkeypatch):
    if bundled.is_missing(*bundled.PACKAGES):
        pytest.skip(bundled.install_hint())
    monkeypatch.chdir(tmp_path)
    page = DOCS / "tutorial.md"
    expected, actual = page.read_text(), blocks.with_outputs(page, "bundled")
    assert blocks.same_output(expected, actual), "run docs/tutorial.py"


# The site


@pytest.mark.slow
def test_the_site_is_built_without_asking_another_host(tmp_path):
    build = pytest.importorskip("mkdocs.commands.build")
    config = pytest.importorskip("mkdocs.config")
    loaded = config.load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True)
    build.build(loaded)
    for page in tmp_path.rglob("*.html"):
        text = page.read_text()
        assert not re.findall(r"(?:src|href)=\"?(?:https?:)?//[^\s>]*\.(?:js|css|woff2?|png|svg)", text), page.name
        assert not re.findall(r"<(?:script|link|img|iframe)[^>]*(?:https?:)?//", text), page.name


# The notebook


def test_the_notebooks_links_are_those_of_the_repository():
    text = notebook_links.NOTEBOOK.read_text()
    assert text == notebook_links.updated(text), "run docs/notebook_links.py"
    assert all(cell.get("outputs", []) == [] for cell in json.loads(text)["cells"])


def test_the_simulated_table_is_what_the_simulation_prints():
    import scaling_table

    page = scaling_table.PAGE.read_text()
    assert scaling_table.updated(page) == page


def test_the_cluster_file_is_a_job_of_ffscope():
    job = yaml.safe_load((ROOT / "examples" / "cluster" / "kuberay.yaml").read_text())
    words = shlex.split(job["spec"]["entrypoint"])
    options = {word for word in words if word.startswith("--")}
    assert words[:2] == ["ffscope", "run"]
    assert options <= generated.option_names(generated.commands()["run"])
    workers = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    gpus = [
        group["replicas"] * group["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
        for group in workers
    ]
    assert words[words.index("--workers") + 1] == str(sum(gpus))
