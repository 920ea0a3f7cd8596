"""Figures as files and in notebooks: hostile text in them has no effect, labels are readable, and they can be printed."""

import base64
import json
import re
import shutil
from html import unescape
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import ffscope
from ffscope.annotating.records import write
from ffscope.html import json_script
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import Pattern
from ffscope.queries.layer import layer_page
from ffscope.queries.tables import Tables
from ffscope.report.catalogue import figures
from ffscope.report.drawn_figure import FORMS, draw
from ffscope.report.histograms import layer_histograms
from ffscope.report.page import write_report
from ffscope.study.folder import Study
from ffscope.web.export import export
from studies import copy_of, sign_otherwise

HARM = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>alert(1)//",
    "]]><svg onload=alert(1)>",
    "'\"><b>&lt;",
    "a\u2028b\u2029c",
]
SHORT = re.compile(r"max_prob|next_rank|active_fraction|residual_prob|residual_top|q05")


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and the text of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] == "script" and self.cdata_elem:
            self.scripts[-1] += data
        self.text += data

    @property
    def tags(self):
        return {tag for tag, _ in self.elements}


@pytest.fixture(scope="module")
def study(explored, tmp_path_factory):
    """A study with hostile text in its annotations, model and corpus."""
    copied = copy_of(explored, tmp_path_factory.mktemp("figures"))
    for number, name in enumerate(HARM):
        write(copied, "mallory", Memory(number % 2, 1), [Pattern("shallow", "".join(HARM), (1, 2, 3))])
        sign_otherwise(copied.folder, "mallory", name)
    manifest = json.loads((copied.folder / "study.json").read_text())
    manifest["model"]["source"] = f"/models/{HARM[0]}"
    manifest["corpus"]["source"] = manifest["settings"]["corpus"] = f"/texts/{HARM[1]}"
    (copied.folder / "study.json").write_text(json.dumps(manifest))
    with Study.adding(copied.folder) as opened:
        write_report(opened)
    return Study.open(copied.folder)


@pytest.fixture(scope="module")
def summary(study):
    return json.loads(study.path("summary.json").read_text())


def is_harmless(page):
    assert not page.tags & {"b", "svg", "iframe", "object", "embed", "base", "form"}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    images = [attributes["src"] for tag, attributes in page.elements if tag == "img"]
    assert all(source.startswith("data:image/svg+xml;base64,") for source in images)


def test_a_figures_page_holds_hostile_names_as_data(study):
    text = study.path("figures/patterns.html").read_text()
    page = Parsed(text)
    is_harmless(page)
    assert "img" not in page.tags
    spec, _, _ = page.scripts
    assert not re.search("[<>&\u2028\u2029]", spec)
    titles = {panel["title"] for panel in json.loads(spec)["concat"]}
    assert {*HARM[:-1], "a<2028>b<2029>c", "machine"} == titles
    drawn = json.loads(study.path("figures/patterns.json").read_text())
    assert {"title": drawn["title"], **json.loads(spec)} == drawn
    assert ("h1", {}) in page.elements
    assert ("main", {}) in page.elements


def test_a_figures_page_runs_its_own_scripts_alone(study):
    page = Parsed(study.path("figures/cases.html").read_text())
    policy = next(attributes["content"] for tag, attributes in page.elements if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_report_holds_hostile_names_as_text(study):
    text = study.path("report.html").read_text()
    page = Parsed(text.replace("<b>", "").replace("</b>", ""))
    is_harmless(page)
    assert "script" not in page.tags
    for name in HARM[:-1]:
        assert name in page.text


def test_an_export_holds_hostile_names_as_data(study, tmp_path):
    export(study.folder, tmp_path / "site", names="L0.1,L1.1")
    for file in (tmp_path / "site").rglob("*.html"):
        page = Parsed(file.read_text())
        is_harmless(page)
        assert "img" not in page.tags
        data = [script for script in page.scripts if script]
        assert len(data) == 3
        for script in data:
            assert not re.search("[<>&\u2028\u2029]", script)
            json.loads(script)


def test_a_notebook_shows_hostile_names_as_text(study):
    results = ffscope.open(study.folder)
    bundle = results.figure("patterns")._repr_mimebundle_()
    assert set(bundle) == {"image/svg+xml", "text/plain"}
    root = ElementTree.fromstring(bundle["image/svg+xml"])
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        "svg",
        "g",
        "path",
        "text",
        "rect",
        "defs",
        "clipPath",
        "line",
    }
    assert not [name for element in root.iter() for name in element.attrib if name.lower().startswith("on")]
    drawn = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert HARM[0] in drawn
    page = Parsed(results._repr_html_())
    is_harmless(page)
    assert page.tags == {"p", "table", "tr", "th", "td"}


def test_no_text_ends_the_block_it_is_in():
    page = Parsed(json_script("a&b", {"text": HARM}))
    assert [tag for tag, _ in page.elements] == ["script"]
    assert json.loads(page.scripts[0]) == {"text": HARM}


def test_half_a_character_in_a_name_is_written_all_the_same(summary, tmp_path):
    entry = summary["patterns"]
    names = {"a\ud800": entry["annotators"]["machine"], "machine": entry["annotators"]["machine"]}
    drawn = draw("patterns", {"patterns": {**entry, "annotators": names}})
    for form in FORMS:
        drawn.save(tmp_path / f"one.{form}")


def panels(spec):
    return spec.get("concat", [spec])


def layer_axes(part):
    """Every encoding of layers in a specification: where its axis begins and ends."""
    if isinstance(part, dict):
        if part.get("title") == "layer" and "scale" in part:
            yield tuple(part["scale"]["domain"])
        for value in part.values():
            yield from layer_axes(value)
    elif isinstance(part, list):
        for value in part:
            yield from layer_axes(value)


def test_all_annotators_share_one_axis_of_layers(summary):
    layers = {name: shares["layer"] for name, shares in summary["patterns"]["annotators"].items()}
    assert len({tuple(some) for some in layers.values()}) > 1  # people looked at single layers
    assert set(layer_axes(draw("patterns", summary).spec)) == {(-0.6, 2.6)}
    widths = {panel["layer"][0]["mark"]["size"] for panel in panels(draw("patterns", summary).spec)}
    assert len(widths) == 1
    two = [name for name in layers if layers[name] == [1]][:1] + [name for name in layers if layers[name] == [0]][:1]
    assert set(layer_axes(draw("patterns", summary, annotators=two).spec)) == {(-0.6, 1.6)}


def words(part):
    """Every title that a specification has: of axes, legends and tooltips; a tooltip without one shows its field's name."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "tooltip" and isinstance(value, list):
                yield from (tip.get("title", tip["field"]) for tip in value)
            if name == "title" and isinstance(value, str):
                yield value
            yield from words(value)
    elif isinstance(part, list):
        for value in part:
            yield from words(value)


def test_axes_tooltips_and_legends_are_named_for_people(summary, study):
    specs = [draw(name, summary).spec for name in summary if "figure" in summary[name]]
    specs += [spec for _, _, spec in layer_histograms(layer_page(Tables(study), 1))]
    for spec in specs:
        shown = set(words(spec))
        assert shown
        assert not [word for word in shown if SHORT.search(word) or "_" in word]
    assert "highest probability in the value's distribution" in set(
        words(draw("agreement_by_probability", summary).spec)
    )
    assert "rank of the next token in the value (1 = top)" in set(words(draw("next_rank", summary).spec))
    assert ">rank of the next token in the value (1 = top)<" in draw("next_rank", summary).svg()


def test_the_reports_tables_are_named_for_people(study):
    text = study.path("report.html").read_text()
    heads = re.findall("<th[^>]*>([^<]*)</th>", text)
    assert not [head for head in heads if SHORT.search(head) or not head]
    assert "highest probability in the value&#39;s distribution" in heads


def test_every_series_has_its_label(summary):
    for name, entry in summary.items():
        assert set(entry.get("series", {})) <= set(figures()[name].labels)


def test_a_bare_figure_has_no_title_but_its_panels(summary):
    drawn = draw("patterns", summary)
    assert f">{drawn.title}<" in drawn.svg()
    assert f">{drawn.title}<" not in drawn.bare().svg()
    assert ">machine<" in drawn.bare().svg()
    assert ">layer<" in drawn.bare().svg()


def test_the_command_draws_bare_figures(study, tmp_path):
    from ffscope.cli import app

    folder = shutil.copytree(study.folder, tmp_path / "study")
    title = draw("cases", json.loads((folder / "summary.json").read_text())).title
    before = (folder / "figures" / "cases.pdf").read_bytes()
    assert title in (folder / "figures" / "cases.svg").read_text()
    done = CliRunner().invoke(app, ["report", str(folder), "--bare"])
    assert done.exit_code == 0, done.output
    assert title not in (folder / "figures" / "cases.svg").read_text()
    assert (folder / "figures" / "cases.pdf").read_bytes() != before
    text = (folder / "report.html").read_text()
    assert f"<h3>Figure 11. {title}</h3>" in unescape(text)  # the caption has it, so the image does not
    images = re.findall('data:image/svg[+]xml;base64,([^"]+)', text)
    assert images
    assert not [image for image in images if title in base64.b64decode(image).decode()]


def test_the_report_has_landmarks_and_is_dark_where_people_want_it(study):
    text = study.path("report.html").read_text()
    page = Parsed(text)
    assert [tag for tag, _ in page.elements if tag in ("header", "main", "footer", "h1")] == [
        "header",
        "h1",
        "main",
        "footer",
    ]
    assert "prefers-color-scheme: dark" in text
