"""A memory's page: its triggers coloured by coefficient, its value, patterns, mutation and neighbours."""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
import torch
from playwright.sync_api import expect

import ffscope
from browser.pages import cells, numbers, twin_of
from ffscope.live.model import Live
from ffscope.memory_name import Memory
from ffscope.queries.memory import memory_page
from ffscope.tokens import spelling

pytestmark = pytest.mark.browser
TEXT = "The cat sat on a mat. Why it flew"


@pytest.fixture(scope="module")
def mutated(study):
    """A memory whose triggers were mutated, and which has a pattern."""
    rows = ffscope.open(study.folder).table("mutation").to_pylist()
    names = [f"L{row['layer']}.{row['memory']}" for row in rows]
    return next(name for name in names if memory_page(study.folder, name).patterns)


def address_of(site, name):
    return f"{site}/{name.replace('.', '/')}"


def first_example(page):
    return page.get_by_role("article").first


def coefficients_shown(place):
    """The coefficients in the titles of tokens, in order."""
    titles = place.locator("[title*=coefficient]").evaluate_all("(all) => all.map((one) => one.title)")
    return [numbers(title.rpartition("coefficient ")[2])[0] for title in titles]


def coefficients_of(model, name, tokens):
    """A memory's coefficient at every token of a sentence, from one run of the model in Python."""
    layer, number = Memory.parse(name)
    ids = torch.tensor([[model.tokenizer.bos_token_id, *tokens]])
    return model.trace(ids).coefficients[layer][0, 1:, number].tolist()


def test_the_trigger_token_and_the_next_are_marked(browse, still, study):
    page = browse(f"{still}/L0/3")
    memory = memory_page(study.folder, "L0.3")
    shown = twin_of(page, "/L0/3.json")["triggers"]
    expect(page.get_by_role("article")).to_have_count(len(shown))
    for place, row in enumerate(shown):
        trigger = memory.triggers[row["rank"] - 1]
        example = page.get_by_role("article").nth(place)
        expect(example.get_by_title(re.compile("trigger token, coefficient"))).to_have_text(trigger.token.strip())
        expect(example.get_by_title(re.compile(": next token"))).to_have_count(1)
        expect(example).to_contain_text(trigger.next_token)
        assert numbers(example.inner_text())[:2] == pytest.approx([trigger.rank, trigger.coefficient], abs=0.006)
        prefix = example.locator(".prefix").evaluate(
            """(prefix) => { const end = prefix.querySelector(".trigger");
            return [...prefix.childNodes].slice(0, [...prefix.childNodes].indexOf(end) + 1)
              .map((one) => one.textContent).join(""); }"""
        )
        plain = (trigger.before + trigger.token).replace("\x1b", "<001B>").replace("\u202e", "<202E>")
        assert prefix.replace("␣", " ") == plain


def test_tokens_have_the_coefficients_of_the_python_call(browse, site, study, model, mutated):
    page = browse(address_of(site, mutated))
    expect(page.get_by_text("Every token is coloured")).to_be_visible()
    sentences = {row["sentence"]: row for row in ffscope.open(study.folder).table("sentences").to_pylist()}
    for place, row in enumerate(twin_of(page, f"/{mutated.replace('.', '/')}.json")["triggers"][:3]):
        expected = coefficients_of(model, mutated, sentences[row["sentence"]]["tokens"])
        example = page.get_by_role("article").nth(place)
        shown = coefficients_shown(example)
        assert shown == pytest.approx(expected[: len(shown)], rel=6e-3, abs=1e-5)
        assert len(shown) == min(len(expected), row["position"] + 25)
        heat = example.locator(".trigger").evaluate("(one) => Number(one.style.getPropertyValue('--heat'))")
        assert heat == pytest.approx(row["coefficient"] / memory_page(study.folder, mutated).maximum, abs=0.002)


def test_rows_in_the_window_are_coloured_first_in_one_question(browse, site):
    """The other rows follow in a second request."""
    urls = []

    def watch(page):
        page.on("request", lambda request: "coefficients.json" in request.url and urls.append(request.url))
        page.route("**/L1/4.json", many)

    def many(route):
        twin = route.fetch().json()
        first = twin["triggers"][0]
        twin["triggers"] = [{**first, "rank": rank, "sentence": rank, "folded": []} for rank in range(1, 16)]
        route.fulfill(body=json.dumps(twin), content_type="application/json")

    page = browse(f"{site}/L1/4", before=watch, width=1280, height=600)
    expect(page.get_by_text("Every token is coloured")).to_be_visible()
    visible = page.get_by_role("article").evaluate_all(
        "(all) => all.filter((one) => one.getBoundingClientRect().top < innerHeight).length"
    )
    questions = [list(map(int, parse_qs(urlsplit(url).query)["sentences"][0].split(","))) for url in urls]
    assert 0 < visible < 15
    assert questions == [list(range(1, visible + 1)), list(range(visible + 1, 16))]


def test_tabs_show_other_prefixes_and_are_in_the_link(browse, still):
    page = browse(f"{still}/L1/4")
    twin = twin_of(page, "/L1/4.json")
    top = page.get_by_role("tab", name="Top")
    expect(top).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="By quantile").click()
    expect(page.get_by_role("article")).to_have_count(len(twin["quantiles"]))
    expect(first_example(page)).to_contain_text(f"quantile {twin['quantiles'][0]['quantile']:.2f}")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Random")).to_be_focused()
    expect(page.get_by_role("article")).to_have_count(len(twin["sample"]))
    again = browse(page.url)
    expect(again.get_by_role("tab", name="Random")).to_have_attribute("aria-selected", "true")
    expect(again.get_by_role("article")).to_have_count(len(twin["sample"]))
    assert numbers(first_example(again).inner_text())[1] == pytest.approx(twin["sample"][0]["coefficient"], abs=0.006)


def test_links_and_keys_lead_to_the_neighbours(browse, still):
    page = browse(f"{still}/L0/21")
    expect(page.get_by_role("heading", level=1)).to_have_text("L0.21")
    for key, name in (("n", "L1.0"), ("p", "L0.21"), ("n", "L1.0")):
        page.keyboard.press(key)
        page.wait_for_url(address_of(still, name))
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
    near = page.get_by_role("navigation", name="Memories")
    random_path = near.get_by_role("link", name="Random").get_attribute("href")
    page.keyboard.press("r")
    page.wait_for_url(f"{still}{random_path}")
    page.goto(f"{still}/L0/0")
    expect(near.get_by_role("link")).to_have_text(["Layer 0", "Next", "Random"])
    near.get_by_role("link", name="Next").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("L0.1")
    near.get_by_role("link", name="Layer 0").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Layer 0")


def test_shortcuts_are_off_while_typing(browse, site):
    page = browse(f"{site}/L0/2")
    page.get_by_label("Your own text").press_sequentially("pnr")
    expect(page.get_by_label("Your own text")).to_have_value("pnr")
    expect(page.get_by_role("heading", level=1)).to_have_text("L0.2")


def test_the_paragraph_around_a_prefix_can_be_seen(browse, still):
    page = browse(f"{still}/L0/3")
    rows = twin_of(page, "/L0/3.json")["triggers"]
    place = next(i for i, row in enumerate(rows) if "script" not in "".join(row["tokens"]))
    sentences = twin_of(page, f"/context.json?sentence={rows[place]['sentence']}")["sentences"]
    assert len(sentences) == 2
    example = page.get_by_role("article").nth(place)
    button = example.get_by_role("button", name="Paragraph")
    expect(button).to_have_attribute("aria-expanded", "false")
    button.click()
    expect(button).to_have_attribute("aria-expanded", "true")
    mine = next(sentence["text"] for sentence in sentences if sentence["sentence"] == rows[place]["sentence"])
    expect(example.get_by_role("mark")).to_have_text(mine)
    expect(example).to_contain_text(" ".join(sentence["text"] for sentence in sentences))
    button.click()
    expect(example.get_by_role("mark")).to_be_hidden()


def test_a_typed_text_has_the_numbers_of_the_python_call(browse, site, model):
    page = browse(f"{site}/L1/4")
    box = page.get_by_label("Your own text")
    box.fill(TEXT)
    box.press("Control+Enter")
    own = page.locator(".own-text")
    expect(own).to_contain_text("L1.4 fires on")
    tokens = model.tokenizer(TEXT)["input_ids"]
    expected = coefficients_of(model, "L1.4", tokens)
    assert coefficients_shown(own.locator(".prefix")) == pytest.approx(expected, rel=6e-3, abs=1e-5)
    fired = sum(number > 0 for number in expected)
    expect(own).to_contain_text(f"L1.4 fires on {fired} of {len(expected)} tokens; highest ")
    again = browse(page.url)
    expect(again.get_by_label("Your own text")).to_have_value(TEXT)
    again.get_by_text("All coefficients").click()
    table = again.get_by_role("region", name="All coefficients").locator("table")
    expect(table.locator("tbody tr")).to_have_count(len(tokens))
    rows = cells(table)[1:]
    assert [row[1] for row in rows] == [spelling(model.tokenizer, token) for token in tokens]
    assert [numbers(row[2])[0] for row in rows] == pytest.approx(expected, rel=6e-3, abs=1e-5)
    page.get_by_label("Your own text").fill("a cat")
    page.get_by_role("button", name="Run").click()
    expect(own).to_contain_text("of 5 tokens")
    page.go_back()
    expect(own).to_contain_text(f"of {len(expected)} tokens")


def test_a_text_that_is_too_long_is_refused_in_a_sentence(browse, site):
    browse.expects("status of 400")
    page = browse(f"{site}/L1/4?text={'a' * 60}")
    expect(page.get_by_role("status").filter(has_text="Shorten it")).to_be_visible()


def test_the_value_and_how_often_it_fires_are_shown(browse, still, study):
    page = browse(f"{still}/L1/4")
    value, triggers = (memory := memory_page(study.folder, "L1.4")).value, memory.triggers
    part = page.locator("section").filter(has=page.get_by_role("heading", name="Promoted tokens", exact=True))
    expect(part).to_be_visible()
    promoted = part.get_by_role("listitem").all_inner_texts()
    assert [text.split()[0] for text in promoted] == [token for token, _ in value.promotes]
    assert [numbers(text)[-1] for text in promoted] == pytest.approx([p for _, p in value.promotes], rel=6e-3)
    hits = sum(trigger.next_token == value.promotes[0][0] for trigger in triggers)
    expect(part).to_contain_text(
        f"follows {hits} of {len(triggers)} triggers (precision {round(100 * value.precision)} %)"
    )
    for token in value.suppresses[:5]:
        expect(part).to_contain_text(token)

    # And how often it fires.
    share = f"{100 * memory.fired / memory.seen:.1f} %"
    expect(page.get_by_role("main")).to_contain_text(
        f"fires on {share} of prefixes ({memory.fired:,} of {memory.seen:,})"
    )
    label = page.get_by_role("img", name=re.compile("^Coefficients of")).get_attribute("aria-label")
    assert f"{memory.seen:,} prefixes" in label
    assert f"{share} above 0" in label
    bars = page.locator(".histogram [title]").evaluate_all("(all) => all.map((one) => one.title)")
    counts = [int(title.rpartition(": ")[2].replace(",", "")) for title in bars]
    assert [count for count in counts if count] == [count for count in memory.histogram if count]


def test_a_pattern_shows_its_triggers_alone(browse, still):
    """With made-up patterns, so that one of them does not cover every trigger."""
    first = {"annotator": "machine", "kind": "shallow", "description": "one", "p_value": 1e-20, "detection": None}
    covers = [
        {**first, "covers": [1, 2, 3]},
        {**first, "annotator": "ada", "description": "two", "covers": [2], "p_value": None},
    ]

    def replace_patterns(route):
        rows = route.fetch().json()
        rows["triggers"] = [{**rows["triggers"][0], "rank": rank, "folded": []} for rank in range(1, 7)]
        route.fulfill(body=json.dumps({**rows, "patterns": covers}), content_type="application/json")

    page = browse(f"{still}/L1/4", before=lambda page: page.route("**/L1/4.json", replace_patterns))
    part = page.locator("section").filter(has=page.get_by_role("heading", name="Patterns", exact=True))
    expect(part).to_contain_text("Found automatically")
    expect(part).to_contain_text("By ada")
    button_one, button_two = part.get_by_role("button", name="one"), part.get_by_role("button", name="two")
    expect(button_one).to_contain_text("shallow · covers 3 triggers · p < 1e-12")
    button_one.hover()
    expect(page.locator("article.covered")).to_have_count(3)
    button_one.click()
    expect(page.get_by_role("article")).to_have_count(3)
    button_two.click()
    expect(page.get_by_role("article")).to_have_count(1)
    expect(button_one).to_have_attribute("aria-pressed", "false")
    assert page.url.endswith("?pattern=2")
    button_two.click()
    expect(page.get_by_role("article")).to_have_count(6)


def test_the_same_prefix_is_shown_once_and_many_are_shown_on_demand(browse, still):
    def many(route):
        twin = route.fetch().json()
        first = twin["triggers"][0]
        twin["triggers"] = [{**first, "rank": rank, "folded": [90, 91] if rank == 1 else []} for rank in range(1, 41)]
        route.fulfill(body=json.dumps(twin), content_type="application/json")

    page = browse(f"{still}/L1/4", before=lambda page: page.route("**/L1/4.json", many))
    expect(page.get_by_role("article")).to_have_count(15)
    expect(first_example(page).get_by_title("The same prefix also has rank 90, 91")).to_have_text("×3")
    page.get_by_role("button", name="Show 25 more").click()
    expect(page.get_by_role("article")).to_have_count(40)


def test_mutation_has_a_summary_and_every_removal(browse, still, mutated):
    page = browse(address_of(still, mutated))
    mutation = twin_of(page, f"/{mutated.replace('.', '/')}.json")["mutation"]
    rows = cells(page.get_by_role("region", name="Mutation").locator("table"))[1:]
    for removed, median, count in rows:
        assert numbers(median)[0] == pytest.approx(100 * mutation["summary"][removed]["median"], abs=0.06)
        assert int(count) == mutation["summary"][removed]["count"]
    assert [row[0] for row in rows] == ["first", "last", "random"]
    page.get_by_text(f"Each removal ({len(mutation['rows'])})").click()
    table = page.get_by_role("region", name="Each removal").locator("table")
    expect(table.locator("tbody tr")).to_have_count(len(mutation["rows"]))
    removals = cells(table)[1:]
    assert [numbers(row[4])[0] for row in removals] == pytest.approx(
        [row["mutated"] for row in mutation["rows"]], rel=6e-3, abs=1e-5
    )


def test_similar_memories_are_links_with_what_they_share(browse, site, model):
    page = browse(f"{site}/L1/4")
    part = page.locator("section").filter(has=page.get_by_role("heading", name="Similar memories"))
    similar = twin_of(page, "/L1/4.json")["similar"]["tokens"]
    expect(part).to_contain_text(f"{similar[0]['memory']} {similar[0]['shared']} of 20 tokens")
    near = Live(model, bos=True).similar(Memory(1, 4))
    for neighbour in near[:5]:
        expect(part).to_contain_text(f"{neighbour.memory} cosine {neighbour.cosine:.2f}".replace("-", "−"))
    part.get_by_role("link", name=near[0].memory, exact=True).last.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(near[0].memory)


def test_a_memorys_name_leads_to_its_page(browse, still):
    page = browse(f"{still}/L1.3")
    assert page.url == f"{still}/L1/3"
    expect(page.get_by_role("heading", level=1)).to_have_text("L1.3")


@pytest.mark.parametrize("path", ["/L1/99", "/L1.99"])
def test_an_unknown_memory_is_a_page_that_says_so(browse, still, path):
    browse.expects("status of 404")
    page = browse(still)
    assert page.goto(f"{still}{path}").status == 404
    expect(page.get_by_role("heading", level=1)).to_have_text("This page cannot be shown")
    expect(page.get_by_role("main")).to_contain_text("Layer 1 has memories 0 to 21")
    page.get_by_role("main").get_by_role("link", name="Overview").click()
    expect(page.get_by_role("heading", name="Layers")).to_be_visible()


def test_a_line_on_top_says_what_it_does_and_leads_to_the_prompt_page(browse, still, mutated):
    page = browse(address_of(still, mutated))
    twin = twin_of(page, f"/{mutated.replace('.', '/')}.json")
    line = page.locator("h1 ~ p, .title ~ p").first
    expect(line).to_contain_text(twin["gist"])
    top = twin["triggers"][0]
    page.get_by_role("link", name="Open its top trigger as a prompt").click()
    page.wait_for_url(re.compile("/prompt"))
    text = "".join(top["tokens"][: top["position"] + 1])
    assert parse_qs(urlsplit(page.url).query) == {"text": [text]}


def test_words_of_a_panel_are_not_broken(browse, still):
    table = browse(f"{still}/L1/4").get_by_role("region", name="Types")
    expect(table).to_contain_text("detector")
    lines = table.locator("bdi").evaluate_all(
        """(all) => all.flatMap((cell) => [...cell.textContent.matchAll(/[a-z]{3,}/g)].map((word) => {
            const range = document.createRange();
            range.setStart(cell.firstChild, word.index);
            range.setEnd(cell.firstChild, word.index + word[0].length);
            return range.getClientRects().length;
        }))"""
    )
    assert set(lines) == {1}


@pytest.mark.parametrize(
    ("rank", "agrees", "words"),
    [(2, False, "ranks 2nd of 49,152"), (1, True, "ranks 1st of 49,152"), (None, False, "has no rank")],
)
def test_the_rank_of_the_next_token_is_shown_beside_agreement(browse, still, rank, agrees, words):
    def rank_it(route):
        twin = route.fetch().json()
        twin["value"] |= {"agrees": agrees, "next_rank": rank, "vocabulary": 49152}
        route.fulfill(body=json.dumps(twin), content_type="application/json")

    page = browse(f"{still}/L1/4", before=lambda page: page.route("**/L1/4.json", rank_it))
    mark = "yes" if agrees else "no"
    expect(page.locator(".summary")).to_contain_text(
        f"the next token of its top trigger {words} in the value; agreement: {mark}."
    )
    part = page.locator("section").filter(has=page.get_by_role("heading", name="Promoted tokens", exact=True))
    expect(part).to_contain_text(f"the next token of its top trigger {words} in the value")
    expect(part).to_contain_text(f"Agreement: top token of the value = next token of the top trigger: {mark}.")
    expect(page.get_by_role("main")).not_to_contain_text("do not agree")


def test_a_dead_memory_is_reported_as_dead(browse, still):
    def die(route):
        twin = route.fetch().json()
        dead = {"fired": 0, "triggers": [], "sample": [], "quantiles": [], "maximum": -0.2, "patterns": []}
        twin["value"] |= {"agrees": None, "precision": None, "next_rank": None}
        route.fulfill(body=json.dumps({**twin, **dead}), content_type="application/json")

    page = browse(f"{still}/L1/4", before=lambda page: page.route("**/L1/4.json", die))
    expect(page.get_by_role("main")).to_contain_text("Dead: this memory fired on no prefix of the corpus.")
    expect(page.get_by_role("tabpanel")).to_contain_text("This memory is dead")
    expect(page.get_by_role("main")).to_contain_text("there is no trigger to compare it with")


def test_without_the_model_live_parts_say_what_they_need(browse, still):
    page = browse(f"{still}/L1/4")
    needs = "needs the model. Started with --no-model."
    expect(page.get_by_text(f"This {needs}", exact=True)).to_have_count(2)
    expect(page.get_by_text(f"Only the trigger token is coloured. Colouring every token {needs}")).to_be_visible()
    expect(page.get_by_label("Your own text")).to_have_count(0)
    assert len(coefficients_shown(first_example(page))) == 1


# Controls that Tab should reach; of several tabs only the selected one, since arrow keys move between them.
USABLE = """() => [...document.querySelectorAll("a[href], button, input, textarea, select, summary, [tabindex='0']")]
  .filter((one) => one.checkVisibility() && !(one.role === "tab" && one.ariaSelected === "false"))"""
NUMBERED = f"({USABLE})().forEach((one, i) => {{ one.dataset.number = i; }})"


def with_all_answers(browse, site):
    """A memory's page with all of the model's answers: elements redrawn later would lose their number."""
    page = browse(f"{site}/L1/4?text=a")
    expect(page.get_by_text("Every token is coloured")).to_be_visible()
    expect(page.locator(".own-text")).to_contain_text("of 1 token")
    expect(page.get_by_text("cosine").first).to_be_visible()
    return page


def test_tab_leads_to_everything_that_can_be_used(browse, site):
    page = with_all_answers(browse, site)
    page.evaluate(NUMBERED)
    count = page.evaluate(f"({USABLE})().length")
    assert count > 40
    reached = []
    for _ in range(count):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("Number(document.activeElement.dataset.number ?? -1)"))
    assert reached == list(range(count))
    # A ring shows the focus.
    assert page.locator(":focus").evaluate("(one) => getComputedStyle(one).outlineStyle") == "solid"


def test_everything_that_can_be_used_has_a_name(browse, site):
    page = with_all_answers(browse, site)
    page.evaluate(NUMBERED)
    for element in page.locator("[data-number]").all():
        snapshot = element.aria_snapshot().splitlines()[0]
        assert re.search(r'"[^"]+"|: \S', snapshot), f"{snapshot} has no name"
