"""A stage of another package: its measures become columns, fields and filters, its panels are drawn, and all text stays text."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

import ffscope
from browser.pages import fits, is_drawn, twin_of

HARM = '<img src=x onerror="window.__hit=1">\u202e</script><script>window.__hit=1</script>'
PLUGIN = f"""
from ffscope.stages.stage import Column, Mean, Measure, Panel, Stage, Table

HARM = {HARM!r}
KINDS = ("table", "bars", "histogram", "tokens", "figure", "text")
DATA = {{
    "table": {{
        "heads": ["Word", "Token", "Memory", "Count", "Real", "Share", "Signed"],
        "kinds": ["text", "token", "memory", "count", "real", "share", "signed share"],
        "rows": [[HARM, " " + HARM, "L0.3", 12345, 0.25, 0.5, -0.125], ["none", None, HARM, None, None, None, None]],
        "more": {{"title": "The rest", "heads": ["Word"], "kinds": ["text"], "rows": [[HARM]]}},
    }},
    "bars": [[HARM, 2.0], ["below", -1.0]],
    "histogram": {{"edges": [0.0, 1.0, 4.0], "counts": [3, 5]}},
    "tokens": [[HARM, 0.75], [" of", None]],
    "figure": {{
        "title": HARM, "data": {{"values": [{{"word": HARM, "number": 1}}]}}, "mark": "bar", "height": 100,
        "encoding": {{"x": {{"field": "word", "type": "nominal"}}, "y": {{"field": "number", "type": "quantitative"}}}},
    }},
    "text": HARM + "\\nA second line.",
}}


def data_of(kind):
    return lambda tables, place: DATA[kind]


table, bars, histogram, tokens, figure, text = map(data_of, KINDS)


def nothing(tables, place):
    return None


def broken(tables, place):
    raise RuntimeError(f"no data of {{place}}")


def wrong(tables, place):
    return HARM


def never_json(tables, place):
    return {{"edges": {{1, 2}}}}


PANELS = (
    *(Panel(f"A {{kind}} " + HARM, kind, f"moody:{{kind}}", "Help " + HARM) for kind in KINDS),
    Panel("Nothing", "text", "moody:nothing"),
    Panel("Broken", "table", "moody:broken"),
    Panel("Wrong", "histogram", "moody:wrong"),
    Panel("No JSON", "histogram", "moody:never_json"),
)
STAGE = Stage(
    name="moody",
    help="Moods of memories.",
    tables=(Table("moody", "memory", tuple(Column(name, kind) for name, kind in (
        ("layer", "int32"), ("memory", "int32"), ("mood", "float64"), ("tint", "string"), ("happy", "bool")))),),
    source="moody",
    measures=(
        Measure("mood", "Mood " + HARM, "share", "moody.mood", "Share of good days", unit="0 to 1", rising=True,
                filtered=True, mean=Mean("mood", "Mean mood", "Mean of the moods"), histogram=("Moods", "linear")),
        Measure("tint", "Tint", "choice", "moody.tint", "Colour", choices=("blue", "none"), filtered=True),
        Measure("happy", "Happy", "answer", "moody.happy", "Whether it is", filtered=True),
    ),
    run="moody:run",
    memory_panels=PANELS,
    layer_panels=PANELS,
)
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """A folder with an installed package that adds a stage; gives the environment that has it."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "moody.py").write_text(PLUGIN)
    info = folder / "moody-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: moody\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ffscope.stages]\nmoody = moody:STAGE\n")
    paths = [str(folder), str(Path(ffscope.__file__).parents[1])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture(scope="module")
def moody(study, tmp_path_factory):
    """A study with the stage done: memory n of a layer has mood n / 100, and every second one a tint."""
    folder = shutil.copytree(study.folder, tmp_path_factory.mktemp("moody") / "study")
    names = pq.read_table(folder / "memories.parquet", columns=["layer", "memory"])
    numbers = names["memory"].to_pylist()
    columns = {
        "mood": pa.array([number / 100 for number in numbers], pa.float64()),
        "tint": ["blue" if number % 2 else None for number in numbers],
        "happy": [number < 5 for number in numbers],
    }
    for name, values in columns.items():
        names = names.append_column(name, values if isinstance(values, pa.Array) else pa.array(values))
    pq.write_table(names, folder / "moody.parquet")
    manifest = json.loads((folder / "study.json").read_text())
    manifest["stages"]["moody"] = {"done": True, "seconds": 1.0}
    (folder / "study.json").write_text(json.dumps(manifest))
    return folder


def ffscope_command(*words):
    return [sys.executable, "-m", "ffscope", *map(str, words)]


@pytest.fixture(scope="module")
def served_moody(chromium, moody, plugin):
    """The address of its explorer, in a process that has the package."""
    command = ffscope_command("serve", moody, "--no-model", "--port", 0)
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, env={**plugin, "COLUMNS": "200"}, **output) as process:
        try:
            yield next(word for line in process.stdout for word in line.split() if word.startswith("http")).rstrip("/")
        finally:
            process.terminate()


def shows_every_panel(page):
    """Every kind of panel is shown as text, a failed one as a sentence, and none as markup."""
    sections = page.locator("section.part")

    def section(title):
        return sections.filter(has=page.get_by_role("heading", name=title))

    for kind in ("table", "bars", "histogram", "tokens", "figure", "text"):
        expect(section(f"A {kind} <img src=x")).to_contain_text("Help <img src=x")
    table = section("A table")
    for text in ("<img src=x", "<202E>", "12,345", "0.25", "50.0 %", "−12.5 %", "–"):
        expect(table.get_by_role("table").first).to_contain_text(text)
    expect(table.get_by_role("row").nth(2)).to_contain_text("none")
    table.get_by_text("The rest (1)").click()
    expect(table.get_by_role("table").last).to_contain_text("</script><script>window.__hit")
    expect(section("A bars").get_by_role("listitem")).to_have_count(2)
    expect(section("A bars")).to_contain_text("−1")
    expect(section("A tokens").locator(".token").last).to_have_text("␣of")
    expect(section("A histogram").locator(".bin")).to_have_count(2)
    expect(section("A histogram")).to_contain_text("2 bins from 0 to 4.")
    expect(section("A text").locator("p").last).to_have_text("A second line.")
    expect(section("A figure").locator("canvas")).to_be_visible()
    assert is_drawn(section("A figure").locator("canvas"))
    for title in ("Broken", "No JSON"):
        expect(section(title)).to_contain_text("This panel could not be computed")
    expect(section("Wrong")).to_contain_text("This panel cannot be drawn")
    expect(section("Nothing")).to_have_count(0)
    assert page.evaluate("window.__hit") is None
    assert page.evaluate("document.querySelectorAll('main img, main script, main [onerror]').length") == 0
    fits(page)


@pytest.mark.parametrize("path", ["L0/3", "L0"])
def test_panels_of_every_kind_are_drawn_as_text(browse, served_moody, path):
    page = browse(f"{served_moody}/{path}")
    shows_every_panel(page)


def test_its_table_links_to_memories(browse, served_moody):
    page = browse(f"{served_moody}/L0/5")
    table = page.get_by_role("region", name="A table")
    expect(table.get_by_role("link")).to_have_count(1)
    expect(table.get_by_role("link", name="L0.3")).to_have_attribute("href", "/L0/3")


def test_a_measure_is_a_column_and_a_filter_of_the_layer(browse, served_moody):
    page = browse(f"{served_moody}/L0?mood_min=20")
    table = page.get_by_role("region", name="Memories of this layer")
    expect(table.get_by_role("columnheader", name="Mood <img")).to_be_visible()
    expect(table.get_by_role("columnheader", name="Tint")).to_be_visible()
    expect(page.get_by_text("2 of 22 memories")).to_be_visible()
    expect(table.get_by_role("row").nth(1)).to_contain_text("20.0 %")
    page.get_by_label("Tint").select_option("blue")
    expect(page.get_by_text("1 of 22 memories")).to_be_visible()
    expect(page.get_by_label("Top token, pattern or types contains")).to_be_visible()
    assert "tint=blue" in page.url
    expect(page.locator("figcaption").filter(has_text="Moods")).to_be_visible()


def test_a_measure_is_searched_by_and_sorted_by(browse, served_moody):
    page = browse(f"{served_moody}/search?mood=0.1..0.15")
    results = page.get_by_role("region", name="Results")
    expect(page.get_by_text("18 memories in")).to_be_visible()
    results.get_by_role("button", name="Mood <img").click()
    expect(results.get_by_role("row").nth(1)).to_contain_text("10.0 %")
    expect(results.get_by_role("columnheader", name="Mood <img")).to_have_attribute("aria-sort", "ascending")
    page.get_by_label("Tint").select_option("none")
    page.get_by_label("Happy").select_option("no")
    page.get_by_label("Mood <img").last.fill("0.11")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_text("3 memories in")).to_be_visible()
    twin = twin_of(page, "/search.json?tint=blue&happy=yes&mood=0.01..&sort=-mood")
    assert [row["mood"] for row in twin["rows"]] == pytest.approx([0.03] * 3 + [0.01] * 3)
    assert twin["asked"]["tint"] == "blue"
    assert {row["tint"] for row in twin["rows"]} == {"blue"}


def test_its_mean_is_in_the_overview(browse, served_moody):
    page = browse(served_moody)
    layers = page.get_by_role("region", name="Layers")
    expect(layers.get_by_role("columnheader", name="Mean mood")).to_be_visible()
    expect(layers.get_by_role("row").nth(1)).to_contain_text("10.5 %")


def test_a_stage_that_was_not_done_is_named_with_its_command(browse, copy, plugin, chromium, tmp_path):
    """The export has the same sentence."""
    subprocess.run(
        ffscope_command("export", copy, "--out", tmp_path / "site", "--memories", "L0.3"), env=plugin, check=True
    )
    for path in ("L0/3", "L0/index"):
        page = browse(f"{(tmp_path / 'site').as_uri()}/{path}.html")
        expect(page.get_by_text("The stage moody has not been run yet. Run ffscope moody DIR.")).to_be_visible()


def test_an_export_has_its_panels(browse, moody, plugin, chromium, tmp_path):
    subprocess.run(
        ffscope_command("export", moody, "--out", tmp_path / "site", "--memories", "L0.3"), env=plugin, check=True
    )
    shows_every_panel(browse(f"{(tmp_path / 'site').as_uri()}/L0/3.html"))


def test_the_terminal_has_its_columns(moody, plugin):
    command = ffscope_command("search", moody, "--where", "mood=0.2..", "--sort", "mood")
    wide = {**plugin, "COLUMNS": "200"}
    output = subprocess.run(command, env=wide, check=True, capture_output=True, text=True).stdout
    assert output.splitlines()[1].split() == [
        "memory", "mood", "fires", "top", "token", "max_prob", "precision", "pattern", "tint", "happy",
    ]  # fmt: skip
    assert "20.0%" in output
