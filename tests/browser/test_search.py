"""The search page finds what `ffscope.queries` finds."""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from browser.pages import cells, numbers
from ffscope.live.model import Live
from ffscope.queries.search import SearchQuery, search

pytestmark = pytest.mark.browser


def search_in_python(study, **query):
    return search(study, SearchQuery.parse(query))


def names_shown(page):
    return [row[0] for row in cells(page.get_by_role("region", name="Results").locator("table"))[1:]]


def shows(page, results):
    """The count and every name, in order."""
    assert results.count > 0
    status = page.get_by_role("status").filter(has_text="millisecond")
    expect(status).to_contain_text(f"{results.count} memor")
    assert numbers(status.inner_text())[0] == results.count
    assert names_shown(page) == [row.memory for row in results.rows]


def press_search(page):
    page.get_by_role("button", name="Search", exact=True).click()


def test_it_begins_with_examples(browse, still, study):
    page = browse(f"{still}/search")
    page.get_by_role("link", name="Memories that fire on less than 1 %").click()
    rare = search_in_python(study, fires="..0.01", sort="maximum")
    expect(page.get_by_role("status").filter(has_text=f"{rare.count} memor")).to_be_visible()
    page.goto(f"{still}/search")
    page.get_by_role("link", name="Memories with “because” in a trigger").click()
    expect(page.get_by_text("No memory matches.")).to_be_visible()
    expect(page.get_by_label("A trigger contains")).to_have_value("because")


def test_by_the_text_of_triggers(browse, still, study):
    page = browse(f"{still}/search")
    page.get_by_label("A trigger contains").fill("CAT")
    page.get_by_label("A trigger contains").press("Enter")
    results = search_in_python(study, trigger="cat")
    expect(page.get_by_role("region", name="Results")).to_be_visible()
    shows(page, results)
    table = cells(page.get_by_role("region", name="Results").locator("table"))
    hits = table[0].index("Hits")
    assert [int(row[hits]) for row in table[1:]] == [row.hits for row in results.rows]
    marked = page.get_by_role("row").nth(1).locator(".match").all_inner_texts()
    assert "".join(marked).lower() == "cat"


def columns_of(page, *heads):
    """Some columns of the results, row by row."""
    table = cells(page.get_by_role("region", name="Results").locator("table"))
    places = [table[0].index(head) for head in heads]
    return [[row[place] for place in places] for row in table[1:]]


def test_by_a_promoted_token_with_its_rank_and_probability(browse, still, study):
    page = browse(f"{still}/search")
    expect(page.get_by_role("main")).to_contain_text("Only the 20 top tokens of each value are searched.")
    page.get_by_label("The value promotes").fill("q")
    page.get_by_label("Layers").fill("0,2")
    press_search(page)
    expect(page.get_by_role("region", name="Results")).to_be_visible()
    results = search_in_python(study, promotes="q", layers="0,2")
    shows(page, results)
    shown = columns_of(page, "Token", "Rank", "Probability")
    assert [row[:2] for row in shown] == [["q", str(row.promoted.rank)] for row in results.rows]
    assert [numbers(row[2])[0] for row in shown] == pytest.approx(
        [row.promoted.probability for row in results.rows], rel=6e-3
    )
    # Another case is another token, unless case is ignored.
    page.get_by_label("The value promotes").fill("Q")
    press_search(page)
    expect(page.get_by_role("status").filter(has_text="millisecond")).to_contain_text(
        f"{search_in_python(study, promotes='Q', layers='0,2').count} memor"
    )
    page.get_by_label("ignore space and case").check()
    press_search(page)
    loose = search_in_python(study, promotes="Q", layers="0,2", loose="yes")
    expect(page.get_by_role("status").filter(has_text="millisecond")).to_contain_text(f"{loose.count} memor")
    shows(page, loose)
    again = browse(page.url)
    expect(again.get_by_label("ignore space and case")).to_be_checked()
    page.get_by_label("The value promotes").fill(" q")
    press_search(page)
    expect(page).to_have_url(re.compile(r"promotes=\+q"))  # the space before it is kept


def test_a_token_that_is_not_there_can_be_looked_for_loosely(browse, still, study):
    page = browse(f"{still}/search?promotes=␣q")
    page.get_by_role("link", name="ignore space and case").click()
    expect(page.get_by_role("region", name="Results")).to_be_visible()
    shows(page, search_in_python(study, promotes="q", loose="yes"))


def test_with_the_model_all_memories_are_ranked_for_a_token(browse, site, still, model):
    page = browse(f"{site}/search?promotes=q&fires=0.9..")
    page.get_by_role("link", name="Rank all memories for the token q").click()
    expect(page.get_by_role("main")).to_contain_text("whose values raise the logit of q")
    ranked = Live(model, bos=True).promoters("q", count=100)
    assert names_shown(page) == [row.memory for row in ranked.rows]
    shown = columns_of(page, "Rank", "Probability", "Logit")
    assert [int(row[0]) for row in shown] == [row.rank for row in ranked.rows]
    assert [numbers(row[2])[0] for row in shown] == pytest.approx(
        [row.logit for row in ranked.rows], rel=6e-3, abs=1e-5
    )
    page.get_by_role("link", name="Search only the 20 top tokens").click()
    expect(page.get_by_role("status").filter(has_text="millisecond")).to_be_visible()
    without = browse(f"{still}/search?promotes=q")
    expect(without.get_by_role("region", name="Results")).to_be_visible()
    expect(without.get_by_role("link", name="Rank all memories")).to_have_count(0)
    without.goto(f"{still}/search?promotes=q&all=yes")
    expect(without.get_by_role("main")).to_contain_text("This needs the model.")


def test_by_pattern_kind_and_range_from_a_link_as_well(browse, still, study):
    query = {"pattern": "ENDS with", "kind": "shallow", "fires": "0.2..0.9", "max_prob": "..0.05", "sort": "maximum"}
    page = browse(f"{still}/search")
    page.get_by_label("A pattern contains").fill(query["pattern"])
    page.get_by_label("Kind").select_option(query["kind"])
    page.get_by_text("Filter by measures").click()
    page.get_by_label("Firing rate, from").fill("0.2")
    page.get_by_label("Firing rate, to").fill("0.9")
    page.get_by_label("Highest probability, to").fill("0.05")
    press_search(page)
    results = search_in_python(study, **{**query, "sort": ""})
    expect(page.get_by_role("region", name="Results")).to_be_visible()
    shows(page, results)
    page.get_by_role("columnheader", name="Maximum").get_by_role("button").click()
    expect(page.get_by_role("columnheader", name="Maximum")).to_have_attribute("aria-sort", "descending")
    expect(page.get_by_role("rowheader").first).to_have_text(search_in_python(study, **query).rows[0].memory)
    again = browse(page.url)
    expect(again.get_by_role("region", name="Results")).to_be_visible()
    shows(again, search_in_python(study, **query))
    expect(again.get_by_label("A pattern contains")).to_have_value(query["pattern"])
    expect(again.get_by_label("Firing rate, from")).to_have_value("0.2")
    again.get_by_role("columnheader", name="Maximum").get_by_role("button").click()
    expect(again.get_by_role("columnheader", name="Maximum")).to_have_attribute("aria-sort", "ascending")
    shows(again, search_in_python(study, **{**query, "sort": "-maximum"}))


def test_a_result_leads_to_its_memory_and_back(browse, still, study):
    page = browse(f"{still}/search?agrees=no&sort=memory")
    first = search_in_python(study, agrees="no", sort="memory").rows[0].memory
    page.get_by_role("link", name=first, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(first)
    page.go_back()
    expect(page.get_by_role("rowheader").first).to_have_text(first)


def test_an_empty_result_says_how_to_loosen_the_search(browse, still, study):
    page = browse(f"{still}/search?trigger=zzz&layers=1")
    expect(page.get_by_text("No memory matches all conditions.")).to_be_visible()
    page.get_by_role("link", name="without trigger zzz").click()
    expect(page.get_by_role("region", name="Results")).to_be_visible()
    shows(page, search_in_python(study, layers="1"))


def test_back_returns_to_the_previous_search(browse, still, study):
    page = browse(f"{still}/search?layers=1")
    expect(page.get_by_role("region", name="Results")).to_be_visible()
    page.get_by_label("Layers").fill("2")
    press_search(page)
    expect(page.get_by_role("rowheader").first).to_contain_text("L2.")
    page.go_back()
    expect(page.get_by_role("rowheader").first).to_contain_text("L1.")
    expect(page.get_by_label("Layers")).to_have_value("1")


def test_more_than_a_page_is_shown_on_demand(browse, still):
    def many(route):
        address = route.request.url
        start = int(parse_qs(urlsplit(address).query).get("offset", ["0"])[0])
        twin = route.fetch(url=re.sub(r"&offset=\d+", "", address)).json()  # this study has only one page
        rows = [{**twin["rows"][number % 50], "memory": f"L7.{number}"} for number in range(130)]
        response = {**twin, "count": 130, "rows": rows[start : start + 100]}
        route.fulfill(body=json.dumps(response), content_type="application/json")

    def crowd(page):
        page.route("**/search.json*", many)

    page = browse(f"{still}/search?dead=no", before=crowd)
    expect(page.get_by_role("rowheader")).to_have_count(100)
    page.get_by_role("button", name="Show 30 more of 30").click()
    expect(page.get_by_role("rowheader")).to_have_count(130)
    expect(page.locator(":focus")).to_have_text("L7.100")
    expect(page.get_by_role("button", name="more of")).to_have_count(0)
    again = browse(page.url, before=crowd)
    expect(again.get_by_role("rowheader")).to_have_count(130)


def test_an_invalid_search_is_a_sentence(browse, still):
    browse.expects("status of 40")
    page = browse(f"{still}/search")
    for query in ("precision=much", "kind=deep", "sort=beauty", "layers=9"):
        page.goto(f"{still}/search?{query}")
        expect(page.get_by_role("alert")).to_contain_text(query.partition("=")[2])
