"""A layer's page: its memories in a table that can be sorted and filtered, however many there are."""

import json
import re

import pytest
from playwright.sync_api import expect

from browser.pages import fits, is_drawn, twin_of

pytestmark = pytest.mark.browser
MANY = 20_000
# Clicks or scrolls, and returns the milliseconds until the page was painted again.
TIMED = """async (element, to) => {
  const start = performance.now();
  if (to === null) element.click(); else element.scrollTop = to;
  await new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted)));
  return performance.now() - start;
}"""


def first_name(page):
    return page.get_by_role("region", name="Memories of this layer").get_by_role("rowheader").first


def count_status(page):
    return page.get_by_role("status").filter(has_text="memor")


def sorted_by(columns, name, *, down):
    """The memories' names as the table sorts them; those without a number are left out."""
    known = [i for i, value in enumerate(columns[name]) if value is not None]
    known.sort(key=lambda i: columns[name][i], reverse=down)
    return [f"L1.{columns['memory'][i]}" for i in known]


def test_a_head_sorts_both_ways(browse, still):
    page = browse(f"{still}/L1")
    columns = twin_of(page, "/L1.json")["columns"]
    for head, name in (("Maximum", "maximum"), ("Next rank", "next_rank"), ("Firing rate", "fires")):
        of_head = page.get_by_role("columnheader", name=head)
        expect(of_head).to_have_attribute("aria-sort", "none")
        for way, down in (("descending", True), ("ascending", False)):
            of_head.get_by_role("button").click()
            expect(of_head).to_have_attribute("aria-sort", way)
            expect(first_name(page)).to_have_text(sorted_by(columns, name, down=down)[0])
    again = browse(page.url)
    expect(first_name(again)).to_have_text(sorted_by(columns, "fires", down=False)[0])
    expect(again.get_by_role("columnheader", name="Firing rate")).to_have_attribute("aria-sort", "ascending")
    expect(again.get_by_role("columnheader", name="Maximum")).to_have_attribute("aria-sort", "none")


def test_a_row_shows_what_the_twin_has(browse, still):
    page = browse(f"{still}/L1")
    columns = twin_of(page, "/L1.json")["columns"]
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="L1.4", exact=True))
    expect(row).to_contain_text(f"{100 * columns['fires'][4]:.1f} %")
    expect(row).to_contain_text(columns["top"][4])
    expect(row).to_contain_text(columns["pattern"][4] or "–")
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", name="L1.4", exact=True)).to_be_visible()


def test_filters_narrow_the_table_and_are_in_the_link(browse, still):
    page = browse(f"{still}/L1")
    columns = twin_of(page, "/L1.json")["columns"]
    rows = range(len(columns["memory"]))
    expect(count_status(page)).to_have_text("22 memories")
    tried = []

    def fit(test):
        tried.append(test)
        left = [row for row in rows if all(each(row) for each in tried)]
        assert 0 < len(left) < 22
        expect(count_status(page)).to_have_text(f"{len(left)} of 22 memories")
        expect(first_name(page)).to_have_text(f"L1.{left[0]}")
        return left

    page.get_by_label("Firing rate, %, from").fill("25")
    fit(lambda row: 100 * columns["fires"][row] >= 25)
    page.get_by_label("Firing rate, %, to").fill("70.5")
    fit(lambda row: 100 * columns["fires"][row] <= 70.5)
    page.get_by_label("Kind").select_option("shallow")
    fit(lambda row: columns["kind"][row] == "shallow")
    page.get_by_label("Top token, pattern or types contains").fill("ENDS WITH")
    left = fit(lambda row: "ends with" in columns["pattern"][row] or "ends with" in columns["top"][row])
    page.get_by_role("columnheader", name="Maximum").get_by_role("button").click()
    first = f"L1.{max(left, key=lambda row: columns['maximum'][row])}"
    expect(first_name(page)).to_have_text(first)
    again = browse(page.url)
    expect(first_name(again)).to_have_text(first)
    expect(count_status(again)).to_have_text(f"{len(left)} of 22 memories")
    expect(again.get_by_label("Kind")).to_have_value("shallow")
    again.get_by_role("button", name="Clear").click()
    expect(count_status(again)).to_have_text("22 memories")
    assert again.url == f"{still}/L1?sort=-maximum"


def test_agreement_and_state_are_filters_too(browse, still):
    def some_die(route):
        twin = route.fetch().json()
        twin["columns"] |= {"dead": [i in (3, 8) for i in range(22)], "agrees": [None, True, *[False] * 20]}
        route.fulfill(body=json.dumps(twin), content_type="application/json")

    page = browse(f"{still}/L1", before=lambda page: page.route("**/L1.json", some_die))
    for label, choice, count, first in (
        ("State", "dead", 2, "L1.3"),
        ("State", "fires", 20, "L1.0"),
        ("Agreement", "no", 20, "L1.2"),
        ("Agreement", "yes", 1, "L1.1"),
    ):
        page.get_by_role("button", name="Clear").click()
        page.get_by_label(label).select_option(choice)
        expect(count_status(page)).to_have_text(f"{count} of 22 memories")
        expect(first_name(page)).to_have_text(first)
    page.get_by_label("State").select_option("dead")
    expect(count_status(page)).to_have_text("0 of 22 memories: no memory passes all filters. Relax one, or clear them.")


def test_a_link_with_words_that_mean_nothing_shows_everything(browse, still):
    page = browse(f"{still}/L1?sort=beauty&kind=deep&state=asleep&fires_min=much")
    expect(count_status(page)).to_have_text("22 memories")
    expect(first_name(page)).to_have_text("L1.0")


def test_layers_lead_to_their_neighbours_and_their_figures_are_drawn(browse, still):
    page = browse(f"{still}/L0")
    figures = twin_of(page, "/L0.json")["figures"]
    expect(page.locator("figure canvas")).to_have_count(len(figures))
    assert all(is_drawn(canvas) for canvas in page.locator("figure canvas").all())
    near = page.get_by_role("navigation", name="Layers")
    expect(near.get_by_role("link")).to_have_text(["Next layer"])
    near.get_by_role("link", name="Next layer").click()
    expect(page.get_by_role("heading", name="Layer 1", exact=True)).to_be_visible()
    near.get_by_role("link", name="Previous layer").click()
    expect(page.get_by_role("heading", name="Layer 0", exact=True)).to_be_visible()


@pytest.fixture
def crowded(browse, still):
    """A layer of very many memories."""

    def grow(route):
        twin = route.fetch().json()
        times = MANY // 22 + 1
        columns = {name: (values * times)[:MANY] for name, values in twin["columns"].items()}
        columns["memory"] = list(range(MANY))
        columns["maximum"] = [(7919 * i) % MANY / 100 for i in range(MANY)]
        route.fulfill(body=json.dumps({**twin, "memories": MANY, "columns": columns}), content_type="application/json")

    page = browse(f"{still}/L1", before=lambda page: page.route("**/L1.json", grow))
    expect(count_status(page)).to_have_text("20,000 memories")
    return page


def test_of_thousands_of_rows_only_those_in_sight_are_in_the_page(crowded):
    scroller = crowded.get_by_role("region", name="Memories of this layer")
    last = 0
    for to in (0, 5000, 330_000, 10_000_000):
        scroller.evaluate("(element, to) => { element.scrollTop = to; }", to)
        expect(scroller.get_by_role("rowheader").last).not_to_have_text(f"L1.{last}")
        assert 10 < crowded.locator("tbody tr").count() < 100
        last = scroller.get_by_role("rowheader").last.inner_text().removeprefix("L1.")
    assert last == str(MANY - 1)
    assert scroller.get_by_role("row").last.get_attribute("aria-rowindex") == str(MANY + 1)
    fits(crowded)


def test_thousands_of_rows_are_sorted_filtered_and_scrolled_within_a_second(crowded):
    scroller = crowded.get_by_role("region", name="Memories of this layer")
    for head, way in (("Maximum", "descending"), ("Maximum", "ascending"), ("Top token", "ascending")):
        of_head = crowded.get_by_role("columnheader", name=head)
        assert of_head.get_by_role("button").evaluate(TIMED, None) < 1000
        expect(of_head).to_have_attribute("aria-sort", way)
    crowded.get_by_role("columnheader", name="Maximum").get_by_role("button").click()
    expect(first_name(crowded)).to_have_text(f"L1.{next(i for i in range(MANY) if 7919 * i % MANY == MANY - 1)}")
    for to in range(0, 600_000, 60_000):
        assert scroller.evaluate(TIMED, to) < 1000
    crowded.get_by_label("Firing rate, %, from").fill("30")
    expect(count_status(crowded)).to_have_text(re.compile(r"^[\d,]+ of 20,000 memories$"))


def test_the_keyboard_goes_from_row_to_row(browse, crowded):
    browse.expects("status of 404")  # the study itself has no such memory
    first_name(crowded).get_by_role("link").focus()
    for _ in range(60):
        crowded.keyboard.press("ArrowDown")
    expect(crowded.locator(":focus")).to_have_text("L1.60")
    crowded.keyboard.press("ArrowUp")
    crowded.keyboard.press("Enter")
    expect(crowded.get_by_role("main")).to_contain_text("Layer 1 has memories 0 to 21")
