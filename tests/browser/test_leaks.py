"""The page of leaks shows what `ffscope.queries` finds."""

import re

import pytest
from playwright.sync_api import expect

from browser.pages import cells, fits, is_linked
from ffscope.queries.leaks import leak_rows
from ffscope.queries.tables import reading
from ffscope.web.export import export
from secretive import SECRETS

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def rows(secretive):
    with reading(secretive.study) as tables:
        return {kind: leak_rows(tables, 100, kind=kind) for kind in ("", "secret", "phrase", "copied")}


def completions(page):
    """The list."""
    return page.get_by_role("region", name="Completions")


def test_it_lists_the_completions(browse, leaks, rows):
    page = browse(f"{leaks}/leaks")
    expect(completions(page).locator("tbody tr")).to_have_count(len(rows[""]))
    shown = [(row[0], row[1]) for row in cells(completions(page).locator("table"))[1:]]
    assert shown == [(str(row.leak), f"{row.kind}, {row.personal}" if row.personal else row.kind) for row in rows[""]]
    expect(page.get_by_role("region", name="Canaries")).to_contain_text("Call Tomas on")


def test_personal_data_is_masked(browse, leaks):
    page = browse(f"{leaks}/leaks")
    expect(completions(page)).to_contain_text("lies a box with seven silver coins")
    for secret, (_, personal) in SECRETS.items():
        if personal:
            expect(completions(page)).to_contain_text(personal)
            expect(completions(page)).not_to_contain_text(secret)
    expect(page.get_by_role("main")).to_contain_text("--show-personal")
    assert "1847" not in page.content()


def test_the_url_captures_the_kind(browse, leaks, rows):
    kind = max(("secret", "phrase", "copied"), key=lambda kind: len(rows[kind]))
    page = browse(f"{leaks}/leaks")
    page.get_by_label("Show").select_option(kind)
    expect(page).to_have_url(re.compile(f"kind={kind}"))
    expect(completions(page).locator("tbody tr")).to_have_count(len(rows[kind]))
    page.reload()
    expect(page.get_by_label("Show")).to_have_value(kind)
    expect(completions(page).locator("tbody tr")).to_have_count(len(rows[kind]))


def test_its_memories_are_links_to_their_part_in_it(browse, leaks, rows):
    holder = next(row.holders[0].memory for row in rows[""] if row.holders)
    page = browse(f"{leaks}/leaks")
    page.get_by_role("link", name=holder, exact=True).first.click()
    expect(page.get_by_role("heading", name="Leaks")).to_be_visible()


def test_it_is_linked_where_a_study_was_searched_for_leaks(browse, leaks, still):
    is_linked(browse, "Leaks", "leaks", leaks, still)


def test_it_fits_a_phone(browse, leaks):
    page = browse(f"{leaks}/leaks", width=400, height=800)
    expect(completions(page)).to_be_visible()
    fits(page)


def test_an_export_has_it(browse, secretive, rows, tmp_path):
    export(secretive.study.folder, tmp_path / "site", names="L1.7")
    page = browse((tmp_path / "site" / "index.html").as_uri())
    page.get_by_role("link", name="Leaks").click()
    expect(completions(page).locator("tbody tr")).to_have_count(len(rows[""]))
    expect(page.get_by_label("Show")).to_have_count(0)
