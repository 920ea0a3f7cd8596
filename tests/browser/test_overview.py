"""The overview: what was studied, its figures, and links to the layers."""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from browser.pages import cells, is_drawn, share, twin_of
from explorer import app_of, served
from studies import end_early

pytestmark = pytest.mark.browser


def test_every_figure_is_drawn_with_its_sentence(browse, site):
    page = browse(site)
    figures = twin_of(page, "/index.json")["figures"]
    assert len(figures) > 5
    drawn = page.get_by_role("figure")
    expect(drawn).to_have_count(len(figures))
    for place, figure in enumerate(figures):
        expect(drawn.nth(place)).to_contain_text(figure["title"])
        expect(drawn.nth(place)).to_contain_text(figure["how_to_read"])
        expect(drawn.nth(place)).to_contain_text(figure["sentence"])
        expect(drawn.nth(place).locator("canvas")).to_be_visible()
        assert is_drawn(drawn.nth(place).locator("canvas"))


def test_what_was_searched_is_said_where_the_time_ended_the_search(browse, still, copy):
    end_early(copy)
    with served(app_of(copy)) as address:
        page = browse(address)
        expect(page.get_by_role("main")).to_contain_text("searched over 999 prefixes of 50 sentences from corpus.jsonl")
        expect(page.get_by_role("main")).to_contain_text("(--minutes 0.5 ended the search early)")
    whole = browse(still)
    expect(whole.get_by_role("main")).to_contain_text("searched over")
    expect(whole.get_by_role("main")).not_to_contain_text("--minutes")


def test_findings_are_a_table_with_the_papers_numbers(browse, site):
    page = browse(site)
    findings = twin_of(page, "/index.json")["findings"]
    rows = cells(page.get_by_role("region", name="In short").locator("table"))
    assert rows[0] == ["Finding", "This model", "The paper", "Reading"]
    assert rows[1:] == [[row["finding"], row["model"], row["paper"], row["reading"]] for row in findings]


def test_the_table_of_layers_says_the_twins_numbers_and_leads_to_a_layer(browse, site):
    page = browse(site)
    shown = cells(page.get_by_role("region", name="Layers").locator("table"))
    layers = twin_of(page, "/index.json")["layers"]
    assert [row[0] for row in shown[1:]] == ["L0", "L1", "L2"]
    for name, label in {"fires": "Firing rate", "agreement": "Agreement"}.items():
        column = shown[0].index(label)
        assert [row[column] for row in shown[1:]] == [share(row[name]) for row in layers]
    page.get_by_role("link", name="L1", exact=True).click()
    expect(page.get_by_role("heading", name="Layer 1", exact=True)).to_be_visible()
    assert page.url == f"{site}/L1"


# Pixels whose neighbours are coloured too: inside a mark, and not in a letter or a line.
COLOURED = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const strong = (x, y) => {
    const [red, green, blue, alpha] = [0, 1, 2, 3].map((part) => data[4 * (y * canvas.width + x) + part]);
    return alpha > 200 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60;
  };
  const found = [];
  for (let y = 1; y < canvas.height - 1; y++) for (let x = 1; x < canvas.width - 1; x++)
    if ([-1, 0, 1].every((by) => strong(x + by, y) && strong(x, y + by))) found.push({ x, y });
  return found;
}"""


def test_a_layers_mark_leads_to_the_layer(browse, site):
    page = browse(site)
    canvas = page.get_by_role("figure").filter(has_text="Pattern coverage").locator("canvas")
    canvas.scroll_into_view_if_needed()
    marks = canvas.evaluate(COLOURED)
    for mark in marks[:: len(marks) // 20]:
        canvas.hover(position=mark)
        if canvas.evaluate("(canvas) => getComputedStyle(canvas).cursor") == "pointer":
            tooltip = page.get_by_role("tooltip").inner_text()
            canvas.click(position=mark)
            page.wait_for_url(re.compile(r"/L\d$"))
            assert f"layer\t{page.url[-1]}" in tooltip.lower()
            return
    pytest.fail("no mark of a layer was found")


def test_the_surest_values_lead_to_their_memories(browse, site):
    page = browse(site)
    first = twin_of(page, "/index.json")["predictive"][0]
    row = page.get_by_role("region", name="Predictive values").get_by_role("row").nth(1)
    expect(row).to_contain_text(first["prediction"])
    row.get_by_role("link").press("Enter")  # figures that are drawn above move it away from a pointer
    expect(page.get_by_role("heading", name=first["memory"], exact=True)).to_be_visible()


def test_the_command_that_made_it_can_be_copied(browse, site):
    page = browse(site, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_text("How this study was made").click()
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == twin_of(page, "/index.json")["command"]


def test_a_stage_that_is_missing_says_what_to_run(browse, copy):
    manifest = json.loads((copy / "study.json").read_text())
    for stage in ("values", "agreement", "report"):
        del manifest["stages"][stage]
    manifest["stages"]["patterns"] = {"done": False, "why": "It was <b>too</b> late."}
    (copy / "study.json").write_text(json.dumps(manifest))
    with served(app_of(copy)) as address:
        page = browse(address)
        main = page.get_by_role("main")
        expect(main).to_contain_text(
            f"The values have not been projected to the vocabulary yet. Run ffscope values {copy.name}."
        )
        expect(main).to_contain_text(f"The figures have not been drawn yet. Run ffscope report {copy.name}.")
        expect(main).to_contain_text("Without patterns: It was <b>too</b> late.")
        expect(main).not_to_contain_text("Mutation")
        expect(page.get_by_role("heading", name="Predictive values")).to_have_count(0)
        page.goto(f"{address}/L0/3")
        expect(main).to_contain_text(
            f"The values have not been projected to the vocabulary yet. Run ffscope values {copy.name}."
        )
        page.goto(f"{address}/L1")
        expect(main).to_contain_text(
            f"The values have not been projected to the vocabulary yet. Run ffscope values {copy.name}."
        )
        expect(page.get_by_role("columnheader", name="Top token")).to_have_count(0)


def test_figures_older_than_the_study_are_reported(browse, copy):
    manifest = json.loads((copy / "study.json").read_text())
    manifest["stages"]["values"] = manifest["stages"].pop("values")  # done last
    (copy / "study.json").write_text(json.dumps(manifest))
    with served(app_of(copy)) as address:
        main = browse(address).get_by_role("main")
        expect(main).to_contain_text(f"since the figures were drawn. To update them, run ffscope report {copy.name}.")


def test_a_memory_or_a_layer_can_be_opened_by_name_from_anywhere(browse, site):
    page = browse(site)
    page.keyboard.press("/")
    page.keyboard.type("l2.13")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="L2.13", exact=True)).to_be_visible()
    box = page.get_by_role("searchbox", name="Go to a memory or layer")
    box.fill("L1")
    box.press("Enter")
    expect(page.get_by_role("heading", name="Layer 1", exact=True)).to_be_visible()


@pytest.mark.parametrize("words", ["the cat", "19", " on a"])
def test_text_that_is_no_name_is_searched_for_in_the_triggers(browse, still, words):
    page = browse(still)
    box = page.get_by_role("searchbox", name="search the triggers")
    expect(box).to_have_attribute("placeholder", "L12.345 or text")
    box.fill(words)
    box.press("Enter")
    expect(page.get_by_label("A trigger contains")).to_have_value(words)
    assert parse_qs(urlsplit(page.url).query) == {"trigger": [words]}


@pytest.mark.parametrize("path", ["/nowhere", "/L1/99", "/L77"])
def test_an_error_page_has_the_box_too(browse, still, path):
    browse.expects("status of 404")
    page = browse(f"{still}{path}")
    expect(page.get_by_role("heading", level=1)).to_have_text("This page cannot be shown")
    page.keyboard.press("/")
    page.keyboard.type("L1.3")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="L1.3", exact=True)).to_be_visible()
