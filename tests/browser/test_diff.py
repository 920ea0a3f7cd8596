"""The page that compares two models shows what `ffscope.queries` finds."""

import re

import pytest
from playwright.sync_api import expect

from browser.pages import cells, fits, is_linked
from ffscope.queries.diff import changed_memories, diff_summary
from ffscope.web.export import export

pytestmark = pytest.mark.browser


def shown(page):
    """The names of the listed memories."""
    return [row[0] for row in cells(page.get_by_role("region", name="Memories, before and after").locator("table"))[1:]]


@pytest.fixture(scope="module")
def folder(compared):
    return compared / "both" / "b"


def test_it_shows_both_models_by_layer(browse, comparison, folder):
    page = browse(f"{comparison}/diff")
    expect(page.get_by_role("heading", level=1)).to_have_text("before → after")
    summary = diff_summary(folder)
    rows = cells(page.get_by_role("region", name="Layers").locator("table"))
    assert [row[0] for row in rows[1:]] == ["L0", "L1", "L2", "all"]
    values = rows[0].index("Values")
    assert [float(row[values]) for row in rows[1:]] == pytest.approx(
        [*(row.value_cosine for row in summary.layers), summary.overall.value_cosine], abs=6e-4
    )
    expect(page.get_by_role("main")).to_contain_text(re.compile(r"of 78 predictions on held-out text changed"))


def test_memories_are_listed_in_the_chosen_order(browse, comparison, folder):
    page = browse(f"{comparison}/diff")
    assert shown(page) == [row.memory for row in changed_memories(folder, 50)]
    page.get_by_label("Order").select_option("value_cosine")
    page.get_by_role("combobox", name="Layer").select_option("2")
    expect(page.get_by_role("region", name="Memories, before and after").locator("tbody tr")).to_have_count(22)
    assert shown(page) == [row.memory for row in changed_memories(folder, 50, sort="value_cosine", layer=2)]
    expect(page).to_have_url(re.compile(r"sort=value_cosine&layer=2"))
    page.reload()
    expect(page.get_by_label("Order")).to_have_value("value_cosine")
    expect(page.get_by_role("region", name="Memories, before and after").locator("tbody tr")).to_have_count(22)
    page.get_by_role("link", name="L2.7").click()
    expect(page.get_by_role("heading", name="Before and after")).to_be_visible()


def test_it_is_linked_where_a_study_is_compared(browse, comparison, still):
    is_linked(browse, "Before and after", "diff", comparison, still)


def test_it_fits_a_phone(browse, comparison):
    page = browse(f"{comparison}/diff", width=400, height=800)
    expect(page.get_by_role("region", name="Memories, before and after")).to_be_visible()
    fits(page)


def test_an_export_has_it(browse, folder, tmp_path):
    export(folder, tmp_path / "site", names="L2.7")
    page = browse((tmp_path / "site" / "index.html").as_uri())
    page.get_by_role("link", name="Before and after").click()
    assert shown(page)[0] == "L2.7"
    expect(page.get_by_label("Order")).to_have_count(0)
    page.get_by_role("link", name="L2.7").click()
    expect(page.get_by_role("heading", name="Before and after")).to_be_visible()
