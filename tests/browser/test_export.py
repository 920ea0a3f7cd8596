"""A study exported to files, opened from the disk and from a web host."""

import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import expect

from browser.pages import fits, is_drawn
from ffscope.queries.memory import memory_page
from ffscope.web.export import export

pytestmark = pytest.mark.browser
NAMES = ["L0.3", "L1.4", "L1.9"]


@pytest.fixture(scope="module")
def folder(study, tmp_path_factory):
    """The exported site, two folders deep."""
    out = tmp_path_factory.mktemp("export") / "some where" / "site"
    export(study.folder, out, names=",".join(NAMES))
    return out


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """Log nothing."""


@pytest.fixture(scope="module")
def hosted(folder):
    """Its address under a path of a web host."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder.parents[1])) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/some%20where/site"
        server.shutdown()
        thread.join(10)


@pytest.fixture(params=["disk", "host"])
def home(request, folder):
    return folder.as_uri() if request.param == "disk" else request.getfixturevalue("hosted")


def test_links_lead_from_the_overview_to_a_memory(browse, home, study):
    page = browse(f"{home}/index.html")
    figures = page.get_by_role("figure")
    expect(figures.locator("canvas")).to_have_count(figures.count())
    assert all(is_drawn(canvas) for canvas in figures.locator("canvas").all())
    page.get_by_role("region", name="Layers").get_by_role("link", name="L1", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Layer 1")
    expect(page.locator("figure canvas").first).to_be_visible()
    page.get_by_role("link", name="L1.4", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("L1.4")
    assert page.url == f"{home}/L1/4.html"
    top = memory_page(study.folder, "L1.4").value.promotes[0][0]
    expect(page.get_by_role("main")).to_contain_text(f"The value’s top token {top} ")
    near = page.get_by_role("navigation", name="Memories")
    near.get_by_role("link", name="Next").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("L1.9")
    near.get_by_role("link", name="Previous").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("L1.4")
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("heading", name="Layers")).to_be_visible()


def test_memories_without_a_page_are_plain_text(browse, folder):
    page = browse(f"{folder.as_uri()}/L1/index.html")
    table = page.get_by_role("region", name="Memories of this layer")
    expect(table.get_by_role("rowheader")).to_have_count(22)
    expect(table.get_by_role("link")).to_have_text(["L1.4", "L1.9"])
    sentence = "This export has pages for 2 of 22 memories of this layer; those without a link were not exported"
    expect(page.get_by_role("main")).to_contain_text(f"{sentence} (ffscope export --memories …).")
    page.goto(f"{folder.as_uri()}/L1/4.html")
    similar = page.locator("section").filter(has=page.get_by_role("heading", name="Similar memories"))
    named = re.findall(r"L\d+\.\d+", similar.inner_text())
    assert len(named) > 3
    assert set(similar.get_by_role("link").all_inner_texts()) == set(named) & set(NAMES)


def test_every_link_leads_to_a_file(browse, folder):
    page = browse(f"{folder.as_uri()}/index.html")
    seen, pending = set(), [page.url]
    while pending:
        address = pending.pop().partition("#")[0]
        if address in seen:
            continue
        seen.add(address)
        page.goto(address)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        pending += page.get_by_role("link").evaluate_all("(all) => all.map((one) => one.href)")
    assert len(seen) == 2 + 3 + len(NAMES)


def test_nothing_is_offered_that_needs_a_server(browse, folder):
    page = browse(f"{folder.as_uri()}/L0/3.html")
    expect(page.get_by_role("navigation", name="Pages").get_by_role("link")).to_have_text(["Overview", "Search"])
    expect(page.get_by_role("searchbox")).to_have_count(0)
    expect(page.get_by_role("textbox")).to_have_count(0)
    expect(page.get_by_role("button", name="Paragraph")).to_have_count(0)
    expect(page.get_by_text("This needs the model")).to_have_count(0)
    expect(page.get_by_text("ffscope serve")).to_have_count(0)


def result_names(page):
    """The names of the memories that a search shows, in order."""
    return page.get_by_role("region", name="Results").get_by_role("rowheader").all_inner_texts()


def test_memories_are_searched_without_a_server(browse, home, study):
    page = browse(f"{home}/L1/4.html")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Search").click()
    assert page.url == f"{home}/search.html"
    box = page.get_by_role("searchbox")
    expect(box).to_be_focused()
    box.fill("l1.4")
    expect(page.get_by_role("status")).to_have_text("1 memory")
    assert result_names(page) == ["L1.4"]
    shown = memory_page(study.folder, "L1.4")
    row = page.get_by_role("region", name="Results")
    expect(row.locator("bdi.token")).to_have_text([token for token, _ in shown.value.promotes[:10]])
    box.fill("no such text anywhere")
    expect(page.get_by_role("main")).to_contain_text("No memory matches.")
    box.fill(" ")
    expect(page.get_by_role("region", name="Results")).to_have_count(0)
    box.fill("L1.4")
    page.get_by_role("link", name="L1.4", exact=True).click()
    assert page.url == f"{home}/L1/4.html"
    page.go_back()
    expect(page.get_by_role("searchbox")).to_have_value("L1.4")


def test_a_search_in_files_finds_what_python_finds(browse, folder, study):
    pages = {name: memory_page(study.folder, name) for name in (f"L{i}.{j}" for i in range(3) for j in range(22))}
    page = browse(f"{folder.as_uri()}/search.html")
    box = page.get_by_role("searchbox")

    box.fill("Song")  # longer than any token of this tokenizer
    matching = {
        name
        for name, memory in pages.items()
        if any("song" in "".join(row.tokens[: row.position + 1]).lower() for row in memory.triggers[:3])
        or any("song" in row.description.lower() for row in memory.patterns[:1])
    }
    assert 0 < len(matching) < len(pages)
    expect(page.get_by_role("status")).to_have_text(f"{len(matching)} memories")
    assert set(result_names(page)) == matching
    linked = set(page.get_by_role("region", name="Results").get_by_role("link").all_inner_texts())
    assert linked == matching & set(NAMES)

    token = "W"  # as typed: before those that promote w or ␣w, the higher its rank the earlier
    ranks = {name: [text for text, _ in memory.value.promotes[:10]] for name, memory in pages.items()}
    wanted = sorted((name for name in ranks if token in ranks[name]), key=lambda name: ranks[name].index(token))
    box.fill(token)
    expect(page.get_by_role("region", name="Results")).to_be_visible()
    assert set(result_names(page)[: len(wanted)]) == set(wanted)
    assert [ranks[name].index(token) for name in result_names(page)[: len(wanted)]] == [
        ranks[name].index(token) for name in wanted
    ]


def test_a_search_in_files_shows_many_matches_part_by_part(browse, folder):
    page = browse(f"{folder.as_uri()}/search.html?q=l")
    expect(page.get_by_role("status")).to_have_text("66 memories")
    assert len(result_names(page)) == 50
    page.get_by_role("button", name="Show 16 more of 16").click()
    assert len(result_names(page)) == 66
    expect(page.get_by_role("button", name="Show")).to_have_count(0)


def test_a_table_is_sorted_and_filtered_without_a_server(browse, folder):
    page = browse(f"{folder.as_uri()}/L1/index.html")
    head = page.get_by_role("columnheader", name="Maximum")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    page.get_by_label("Firing rate, %, from").fill("30")
    expect(page.get_by_role("status").filter(has_text="of 22 memories")).to_be_visible()
    first = page.get_by_role("region", name="Memories of this layer").get_by_role("rowheader").first.inner_text()
    again = browse(page.url)
    expect(again.get_by_role("region", name="Memories of this layer").get_by_role("rowheader").first).to_have_text(
        first
    )
    expect(again.get_by_role("status").filter(has_text="of 22 memories")).to_be_visible()


def test_an_exported_page_fits_a_phone(browse, folder):
    page = browse(f"{folder.as_uri()}/index.html", width=400)
    expect(page.locator("figure canvas").last).to_be_visible()
    fits(page)
    page.goto(f"{folder.as_uri()}/L1/4.html")
    expect(page.get_by_role("heading", level=1)).to_have_text("L1.4")
    fits(page)
    page.goto(f"{folder.as_uri()}/search.html?q=a")
    expect(page.get_by_role("region", name="Results")).to_be_visible()
    fits(page)


def test_an_export_hides_the_path_of_the_study(folder, study):
    for file in folder.rglob("*"):
        if file.suffix in (".html", ".json"):
            assert str(study.folder) not in file.read_text(), file
