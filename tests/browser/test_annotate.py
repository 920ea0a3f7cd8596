"""The annotation page: people mark what prefixes share, step by step, and nothing is lost."""

import re

import pytest
from playwright.sync_api import expect

import ffscope
from browser.pages import fits, is_drawn, twin_of
from explorer import app_of, served
from ffscope.patterns.pattern import Pattern
from ffscope.queries.annotations import read

pytestmark = pytest.mark.browser


@pytest.fixture
def desk(copy):
    """The address of a writable study with four memories a layer to annotate, and the study."""
    with served(app_of(copy)) as address:
        yield f"{address}/annotate?sample=4", ffscope.open(copy).study


def memory_on(page):
    """The memory being annotated."""
    heading = page.get_by_role("heading", level=2).filter(has_text=re.compile(r"^L\d+\.\d+"))
    expect(heading).to_be_visible()
    return heading.inner_text().split()[0]


def is_on(page, memory):
    expect(page.get_by_role("heading", level=2, name=memory)).to_be_visible()
    expect(page.get_by_role("listitem").and_(page.locator("[aria-current=true]"))).to_be_visible()


def saved(page):
    """Wait until every change has reached the server."""
    expect(page.get_by_text(re.compile(r"^saved \d\d:\d\d:\d\d$"))).to_be_visible()


def marked(page):
    """The patterns that each prefix is marked with."""
    rows = page.get_by_role("list", name="Prefixes").get_by_role("listitem")
    return [[int(text) for text in row.locator("[aria-pressed=true]").all_inner_texts()] for row in rows.all()]


def ranks_on(page, memory):
    return [
        row["rank"] for row in twin_of(page, f"/annotate/{memory.replace('.', '/')}.json?annotator=ada")["triggers"]
    ]


def begin(browse, address, name="ada", before=None):
    page = browse(address, before=before)
    page.get_by_label("Your name").fill(name)
    page.get_by_role("button", name="Begin").click()
    return page, memory_on(page)


def mark(page, keys, description, kind):
    """Mark by keyboard, as in `1j1j1`; then describe the selected pattern and choose its kind."""
    for key in keys:
        page.keyboard.press(key)
    page.keyboard.press("d")
    page.keyboard.type(description)
    page.keyboard.press("Enter")
    page.keyboard.press(kind)


def test_a_memory_is_annotated_by_keyboard_and_the_next_one_comes(desk, browse):
    address, study = desk
    page, memory = begin(browse, address)
    assert "annotator=ada" in page.url
    expect(page.get_by_text("0 of 12 done")).to_be_visible()
    ranks = ranks_on(page, memory)
    page.keyboard.press("1")
    expect(page.get_by_text("1 of 3", exact=True)).to_be_visible()
    mark(page, "j1jj1", "ends  with a", "s")
    expect(page.get_by_text("3 prefixes", exact=True)).to_be_visible()
    assert marked(page)[:4] == [[1], [1], [], [1]]
    mark(page, "2k2k2", "about cats <b>", "m")
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 of 12 done")).to_be_visible()
    (record,) = read(study)
    assert (record.annotator, str(record.memory), record.source) == ("ada", memory, "page")
    assert record.patterns == [
        Pattern("shallow", "ends with a", (ranks[0], ranks[1], ranks[3])),
        Pattern("semantic", "about cats <b>", (ranks[1], ranks[2], ranks[3])),
    ]
    second = memory_on(page)
    assert second != memory
    is_on(page, second)
    page.keyboard.press("0")
    expect(page.get_by_role("button", name="No pattern")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Done, next").click()
    expect(page.get_by_text("2 of 12 done")).to_be_visible()
    assert {str(record.memory): len(record.patterns) for record in read(study)} == {memory: 2, second: 0}


def test_steps_can_be_undone_also_after_a_reload(desk, browse):
    address, _ = desk
    page, memory = begin(browse, address)
    for key in "1j1j1":
        page.keyboard.press(key)
    assert marked(page)[:3] == [[1], [1], [1]]
    page.keyboard.press("u")
    assert marked(page)[:3] == [[1], [1], []]
    page.keyboard.press("r")
    assert marked(page)[:3] == [[1], [1], [1]]
    page.keyboard.press("u")
    saved(page)
    page.wait_for_load_state("networkidle")
    page.reload()
    is_on(page, memory)
    assert marked(page)[:3] == [[1], [1], []]
    page.get_by_role("button", name="Undo").click()
    assert marked(page)[:3] == [[1], [], []]
    page.get_by_role("button", name="Undo").click()
    assert marked(page)[:3] == [[], [], []]


def test_what_is_half_done_is_there_again_even_when_the_page_is_left_at_once(desk, browse):
    address, study = desk
    page, memory = begin(browse, address)
    page.keyboard.press("1")
    page.keyboard.press("s")
    page.keyboard.press("d")
    page.keyboard.type("half a wor")
    page.goto(address.partition("/annotate")[0])  # before the typing has paused
    page.goto(f"{address}&annotator=ada")
    is_on(page, memory)
    assert marked(page)[0] == [1]
    expect(page.get_by_label("Description of pattern 1")).to_have_value("half a wor")
    expect(page.get_by_role("button", name="shallow")).to_have_attribute("aria-pressed", "true")
    assert read(study) == []
    elsewhere = browse(page.url)  # another computer
    is_on(elsewhere, memory)
    expect(elsewhere.get_by_label("Description of pattern 1")).to_have_value("half a wor")


def test_shortcuts_are_off_while_typing(desk, browse):
    address, _ = desk
    page, memory = begin(browse, address)
    mark(page, "1", "just an unusual dark sum 0123", "s")
    expect(page.get_by_label("Description of pattern 1")).to_have_value("just an unusual dark sum 0123")
    expect(page.get_by_role("textbox", name=re.compile("Description"))).to_have_count(1)
    assert marked(page)[0] == [1]
    is_on(page, memory)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("x")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_have_count(0)
    expect(page.get_by_role("textbox", name=re.compile("Description"))).to_have_count(1)


def test_a_new_pattern_is_described_at_once(desk, browse):
    address, _ = desk
    page, memory = begin(browse, address)
    page.keyboard.press("a")
    page.keyboard.type("abc d")
    expect(page.get_by_label("Description of pattern 1")).to_have_value("abc d")
    expect(page.get_by_role("textbox", name=re.compile("Description"))).to_have_count(1)
    is_on(page, memory)


def full_sheets(page):
    """Give every memory 25 prefixes, as in a real study, by repeating its own."""

    def longer(route):
        sheet = route.fetch().json()
        triggers = sheet["triggers"]
        sheet["triggers"] = [{**triggers[i % len(triggers)], "rank": i + 1} for i in range(25)]
        route.fulfill(json=sheet)

    page.route(re.compile(r"/annotate/L\d+/\d+\.json\?"), longer)


def test_on_a_phone_the_patterns_stay_in_reach_while_scrolling(desk, browse):
    address, _ = desk
    page = browse(f"{address}&annotator=ada", before=full_sheets, width=400, height=800)
    is_on(page, memory_on(page))
    tall = page.evaluate("document.documentElement.scrollHeight")
    assert tall > 1600
    page.get_by_role("button", name="Add a pattern").click()
    controls = [
        *(page.get_by_role("button", name=name) for name in ("Add a pattern", "No pattern", "Done, next", "Undo")),
        page.get_by_label("Description of pattern 1"),
        page.get_by_role("button", name="semantic"),
    ]
    for top in (0, 400, tall // 2, tall):
        page.evaluate("(top) => scrollTo(0, top)", top)
        fits(page)
        for control in controls:
            expect(control).to_be_in_viewport(ratio=1)
    for _ in range(5):
        page.get_by_role("button", name="Add a pattern").click()
    for control in controls[:4]:
        expect(control).to_be_in_viewport(ratio=1)
    page.get_by_label("Description of pattern 6").focus()
    expect(page.get_by_label("Description of pattern 6")).to_be_in_viewport(ratio=1)
    fits(page)


def test_on_a_phone_no_prefix_lies_under_the_patterns(desk, browse):
    """Neither the one that the keys lead to nor the last one."""
    address, _ = desk
    page = browse(f"{address}&annotator=ada", before=full_sheets, width=400, height=800)
    is_on(page, memory_on(page))
    for _ in range(4):
        page.get_by_role("button", name="Add a pattern").click()
    page.keyboard.press("Escape")
    rows = page.get_by_role("list", name="Prefixes").get_by_role("listitem")
    panel = page.locator(".sheet-side").bounding_box()
    for _ in range(rows.count()):
        box = page.locator("[aria-current=true].sheet-prefix").bounding_box()
        assert box["y"] + box["height"] <= panel["y"]
        page.keyboard.press("j")


def test_too_few_prefixes_are_refused_and_nothing_is_lost(desk, browse):
    browse.expects("status of 400")
    address, study = desk
    page, memory = begin(browse, address)
    mark(page, "1j1", "two", "s")
    page.keyboard.press("Enter")
    expect(page.get_by_text("a pattern needs at least 3")).to_be_visible()
    is_on(page, memory)
    assert marked(page)[:2] == [[1], [1]]
    assert read(study) == []
    page.get_by_role("list", name="Prefixes").get_by_role("listitem").nth(2).get_by_label("Pattern 1").click()
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 of 12 done")).to_be_visible()
    assert len(read(study)[0].patterns[0].covers) == 3


def test_nothing_of_what_the_machine_found_is_shown(desk, browse):
    address, _ = desk
    page, memory = begin(browse, address)
    twin = twin_of(page, f"/{memory.replace('.', '/')}.json")
    text = page.get_by_role("main").inner_text()
    for pattern in twin["patterns"]:
        assert pattern["description"] not in text
    for row in twin["triggers"]:
        assert f"{row['coefficient']:.3g}" not in text


def test_figure_2_is_drawn_of_the_machine_and_oneself(desk, browse):
    address, _ = desk
    page = browse(f"{address}&annotator=ada")
    memory_on(page)
    mark(page, "1j1j1", "three", "s")
    page.get_by_text("Figure 2 so far").click()
    canvas = page.locator("details canvas")
    expect(canvas).to_be_visible()
    before = canvas.evaluate("(canvas) => canvas.toDataURL()")
    page.get_by_role("button", name="Done, next").click()
    expect(page.get_by_text("1 of 12 done")).to_be_visible()
    page.wait_for_function(
        "(before) => (document.querySelector('details canvas')?.toDataURL() ?? before) !== before", arg=before
    )
    assert is_drawn(canvas)


def test_the_last_memory_says_that_all_are_done(desk, browse):
    address, study = desk
    page = browse(f"{address.replace('sample=4', 'sample=1')}&annotator=ada")
    for count in range(1, 4):
        is_on(page, memory_on(page))
        page.keyboard.press("0")
        page.keyboard.press("Enter")
        expect(page.get_by_text(f"{count} of 3 done")).to_be_visible()
    expect(page.get_by_text("All memories in the sample are done.")).to_be_visible()
    expect(page.locator("details canvas")).to_be_visible()
    assert len(read(study)) == 3


def test_two_people_at_once_lose_nothing(desk, browse):
    address, study = desk
    people = {name: begin(browse, address, name)[0] for name in ("ada", "bob")}
    for number in range(1, 4):
        for page in people.values():
            is_on(page, memory_on(page))
            for key in "1j1j1":
                page.keyboard.press(key)
        for name, page in people.items():
            mark(page, "", f"{name} {number}", "s")
        for page in people.values():
            page.keyboard.press("Enter")
        for page in people.values():
            expect(page.get_by_text(f"{number} of 12 done")).to_be_visible()
    assert sorted((record.annotator, record.patterns[0].description) for record in read(study)) == [
        (name, f"{name} {number}") for name in ("ada", "bob") for number in (1, 2, 3)
    ]
    assert all(len(record.patterns[0].covers) == 3 for record in read(study))
    people["ada"].reload()
    expect(people["ada"].get_by_text("Others: bob 3")).to_be_visible()
    expect(people["ada"].get_by_text("3 of 12 done")).to_be_visible()


def refuse_drafts(page):
    """To be called before a page is loaded: on a loaded one, Chromium may let through a request that comes soon after."""
    page.route("**/draft.json", lambda route: route.abort())


def test_what_could_not_be_saved_is_saved_later(desk, browse):
    browse.expects("ERR_FAILED")
    address, _ = desk
    page, memory = begin(browse, address, before=refuse_drafts)
    for key in "1j1":
        page.keyboard.press(key)
    expect(page.get_by_text("Not saved.")).to_be_visible()
    assert marked(page)[:2] == [[1], [1]]
    page.unroute("**/draft.json")
    saved(page)  # retried without a click
    expect(page.get_by_text("Not saved.")).to_have_count(0)
    elsewhere = browse(page.url)
    is_on(elsewhere, memory)
    assert marked(elsewhere)[:2] == [[1], [1]]


def test_what_was_kept_in_the_browser_does_not_come_back_over_newer_steps(desk, browse):
    browse.expects("ERR_FAILED")
    address, _ = desk
    page, memory = begin(browse, address, before=refuse_drafts)
    page.keyboard.press("1")
    expect(page.get_by_text("Not saved.")).to_be_visible()
    page.unroute("**/draft.json")
    page.reload()  # the last state is sent as the page is left
    is_on(page, memory)
    assert marked(page)[0] == [1]
    elsewhere = browse(page.url)
    is_on(elsewhere, memory)
    elsewhere.keyboard.press("j")
    elsewhere.keyboard.press("1")
    saved(elsewhere)
    page.reload()
    is_on(page, memory)
    assert marked(page)[:2] == [[1], [1]]


def test_a_reserved_name_is_refused(desk, browse):
    browse.expects("status of 400")
    address, _ = desk
    page = browse(address)
    page.get_by_label("Your name").fill("machine")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be a person's name")
    page.get_by_label("Your name").fill("ada")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_text("0 of 12 done")).to_be_visible()


def test_any_memory_of_the_sample_can_be_opened_and_left(desk, browse):
    address, _ = desk
    page, first = begin(browse, address)
    page.get_by_text("All memories in the sample").click()
    names = [entry["memory"] for entry in twin_of(page, "/annotate.json?annotator=ada&sample=4")["memories"]]
    assert sorted(page.locator(".sample").get_by_role("link").all_inner_texts()) == sorted(names)
    page.locator(".sample").get_by_role("link", name=names[5], exact=True).click()
    is_on(page, names[5])
    assert f"memory={names[5]}" in page.url
    page.go_back()
    is_on(page, first)
    page.get_by_role("button", name="Skip").click()
    is_on(page, names[names.index(first) + 1])
