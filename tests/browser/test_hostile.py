"""A study with malicious text, tokens, titles, names and annotations: they are shown as text and never executed."""

import json
import shutil
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

import ffscope
from browser.pages import fits, is_drawn, twin_of
from explorer import app_of, served, tiny_model
from ffscope.annotating import drafts
from ffscope.annotating.drafts import DraftPattern
from ffscope.annotating.records import write
from ffscope.differences import diff
from ffscope.memory_name import Memory
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.patterns.pattern import Pattern
from ffscope.pipeline import run
from ffscope.report.page import write_report
from ffscope.study.folder import Study
from ffscope.web.export import export
from studies import sign_otherwise, undrawn, write_corpus

pytestmark = pytest.mark.browser
SCRIPT = "<script>window.__hit=1;alert(1)</script>"
IMAGE = '<img src=x onerror="window.__hit=1;alert(2)">'
MARKS = "\u202eevil\u2066 \x00 \x1b[31m \ufffd \u200b"
LONG = "W" * 1_000_000
HARM = [SCRIPT, IMAGE, MARKS, "</script>" + SCRIPT, '"><svg onload=window.__hit=1>', "javascript:alert(3)", "ש" * 300]
PERSON = '"></script><img src=x onerror="window.__hit=1;alert(4)">'
SOURCE = f"models/{IMAGE}\u202e&lt;b&gt;"

# The longest time for which the page did not respond, in milliseconds.
WATCH = """window.__longest = 0;
new PerformanceObserver((list) => list.getEntries().forEach(({ duration }) => {
  window.__longest = Math.max(window.__longest, duration);
})).observe({ type: "longtask", buffered: true });"""
INJECTED = """() => [...document.querySelectorAll("img, svg, iframe, object, embed, base, style, [action], [onload], [onerror]")]
  .concat([...document.scripts].filter((one) => one.type !== "application/json" && !/\\/static\\/\\w+\\.js$/.test(one.src)))
  .map((one) => one.outerHTML.slice(0, 200))"""
# Every text and title that a person or a screen reader encounters.
SHOWN_TEXT = """() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const said = [document.title];
  while (texts.nextNode()) if (texts.currentNode.parentElement.closest("script") === null) said.push(texts.currentNode.data);
  for (const one of document.querySelectorAll("[title], [aria-label]")) said.push(one.title, one.ariaLabel ?? "");
  return said.join("|");
}"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, tokenizer):
    """A study of a hostile corpus, with more hostile text put into its files."""
    folder = tmp_path_factory.mktemp("hostile")
    plain = write_corpus(folder / "plain.jsonl", hostile=True).read_text().splitlines()
    with (folder / "corpus.jsonl").open("wb") as out:
        for line in plain:
            row = {**json.loads(line), "title": f"{SCRIPT}{MARKS}", "topic": IMAGE}
            out.write(json.dumps(row).encode() + b"\n")
        out.write(b'{"text": "broken \xff\xfe\xc3\x28 bytes"}\n')
    with undrawn():  # until the files are spoiled too
        original = run(
            tiny_model(tokenizer),
            CorpusOptions(str(folder / "corpus.jsonl")),
            folder / "study",
            search=SearchOptions(top=6),
            examples=40,
            mutation_memories=4,
            effect_memories=3,
            exact_examples=4,
            group_examples=4,
            mutation_triggers=5,
            encoder="model",
        )
    assert original.manifest["corpus"]["skipped"] == {"lines that are not UTF-8": 1}
    models = {"model_before": tiny_model(tokenizer), "model_after": tiny_model(tokenizer)}
    diff(original.folder, original.folder, **models, diff_tokens=200)
    spoil(original.folder)
    study = ffscope.open(original.folder).study
    for number in range(6):
        write(study, "mallory", Memory(0, number), [Pattern("shallow", f"{SCRIPT}{IMAGE}\u202e", (1, 2, 3))])
    drafts.save(study, "mallory", Memory(1, 0), [DraftPattern("<b>", f"{IMAGE}\u202e\x00", [1, 2])], none=False)
    sign_otherwise(original.folder, "mallory", PERSON)
    with Study.adding(original.folder) as opened, pytest.MonkeyPatch.context() as patch:
        patch.setattr("ffscope.report.page.FORMS", ("svg", "html"))  # no page shows the others
        write_report(opened)
    return original.folder


def spoil(folder):
    """Put hostile text into the tables; texts, their ends and their tokens stay consistent."""
    words = [f"{HARM[i % len(HARM)]}{i}" for i in range(67)]
    words[9] = LONG
    rewrite(folder / "vocabulary.parquet", text=lambda row: words[row["token"]])
    rewrite(folder / "patterns.parquet", description=lambda row: f"{SCRIPT}{IMAGE}{MARKS}" + "y" * 10_000)

    def pieces(row):
        texts = [HARM[(row["sentence"] + at) % len(HARM)] for at in range(len(row["tokens"]))]
        if row["sentence"] % 20 == 1:
            texts[len(texts) // 2] = LONG
        return texts

    def ends(row):
        lengths = [len(piece) for piece in pieces(row)]
        return [sum(lengths[: at + 1]) for at in range(len(lengths))]

    rewrite(folder / "sentences.parquet", ends=ends, text=lambda row: "".join(pieces(row)))
    manifest = json.loads((folder / "study.json").read_text())
    manifest["model"]["source"] = manifest["stages"]["diff"]["base"]["source"] = SOURCE
    manifest["stages"]["diff"]["match_reason"] = f"{IMAGE}{MARKS}"
    manifest["corpus"]["source"] = manifest["settings"]["corpus"] = f"{SCRIPT}\u202e/corpus"
    (folder / "study.json").write_text(json.dumps(manifest))


def rewrite(file, **columns):
    """Recompute some columns of a table, each from its old row."""
    table = pq.read_table(file)
    rows = table.to_pylist()
    replaced = {name: [make(row) for row in rows] for name, make in columns.items()}
    for name, values in replaced.items():
        field = table.schema.field(name)
        table = table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))
    pq.write_table(table, file)


@pytest.fixture(scope="module")
def harm(chromium, hostile, tokenizer):
    """The address of its explorer."""
    with served(app_of(hostile, tokenizer)) as address:
        yield address


def is_unharmed(page):
    """No script ran, no markup was injected, no direction or control character is left, and the page responds."""
    assert page.evaluate("window.__hit") is None
    assert page.evaluate(INJECTED) == []
    left = set(page.evaluate(SHOWN_TEXT)) & set("\u202e\u2066\x00\x1b\u200b")
    assert not left
    fits(page)
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_timeout(200)  # charts are redrawn
    fits(page)
    assert page.evaluate("window.__longest") < 2000


def opened(browse, address, **options):
    return browse(address, before=lambda page: page.add_init_script(WATCH), **options)


def test_the_overview_shows_it_as_text(browse, harm):
    page = opened(browse, harm)
    expect(page.get_by_role("heading", level=1)).to_contain_text(IMAGE)
    expect(page.get_by_role("heading", level=1)).to_contain_text("<202E>")
    expect(page.locator("figure canvas").last).to_be_visible()
    page.get_by_text("How this study was made").click()
    expect(page.get_by_role("main")).to_contain_text("lines that are not UTF-8")
    is_unharmed(page)


def test_a_layer_shows_it_as_text(browse, harm):
    page = opened(browse, f"{harm}/L0")
    expect(page.get_by_role("region", name="Memories of this layer")).to_contain_text("<script>window.__hit")
    page.get_by_label("Top token, pattern or types contains").fill("<IMG")
    expect(page.get_by_role("status").filter(has_text="memor")).to_be_visible()
    is_unharmed(page)


def test_a_comparison_shows_it_as_text(browse, harm):
    page = opened(browse, f"{harm}/diff")
    expect(page.get_by_role("heading", level=1)).to_contain_text(IMAGE)
    expect(page.get_by_role("region", name="Memories, before and after")).to_contain_text("<script>window.__hit")
    page.get_by_label("Order").select_option("triggers_kept")
    expect(page.get_by_role("region", name="Memories, before and after")).to_contain_text("<202E>evil<2066>")
    is_unharmed(page)


@pytest.fixture(scope="module")
def harmful_leaks(chromium, secretive, tmp_path_factory):
    """The address of a study whose leaks and canaries are hostile, and the study; nothing is masked."""
    folder = shutil.copytree(secretive.study.folder, tmp_path_factory.mktemp("leaks") / "study")
    texts = {"prefix": f"{SCRIPT}{LONG}", "text": f"{IMAGE}{MARKS}", "rest": LONG, "personal": IMAGE}
    rewrite(folder / "leaks.parquet", **{name: lambda row, text=text: text for name, text in texts.items()})
    rewrite(folder / "canaries.parquet", before=lambda row: SCRIPT, secret=lambda row: MARKS, after=lambda row: LONG)
    manifest = json.loads((folder / "study.json").read_text())
    manifest["stages"]["leaks"]["show_personal"] = True
    (folder / "study.json").write_text(json.dumps(manifest))
    with Study.adding(folder) as opened, pytest.MonkeyPatch.context() as patch:
        patch.setattr("ffscope.report.page.FORMS", ("svg", "html"))
        write_report(opened)
    with served(app_of(folder)) as address:
        yield address, folder


def test_leaks_show_it_as_text(browse, harmful_leaks):
    address, folder = harmful_leaks
    page = opened(browse, f"{address}/leaks")
    expect(page.get_by_role("region", name="Completions")).to_contain_text(IMAGE)
    expect(page.get_by_role("region", name="Completions")).to_contain_text("<202E>evil<2066>")
    expect(page.get_by_role("region", name="Canaries")).to_contain_text("<script>window.__hit")
    is_unharmed(page)
    page.get_by_role("region", name="Completions").get_by_role("link").first.click()
    expect(page.get_by_role("main")).to_contain_text(IMAGE)
    is_unharmed(page)
    page = opened(browse, (folder / "report.html").as_uri())
    expect(page.locator("body")).to_contain_text(IMAGE)
    assert page.evaluate("window.__hit") is None


@pytest.mark.parametrize("name", ["L0/3", "L2/21"])
def test_a_memory_shows_it_as_text(browse, harm, name):
    page = opened(browse, f"{harm}/{name}?text=%3Cscript%3Ealert(1)%3C/script%3E")
    expect(page.get_by_role("article").first).to_contain_text("<script>window.__hit")
    expect(page.get_by_role("article").first).to_contain_text("<202E>evil<2066>")
    expect(page.get_by_text("All coefficients")).to_be_visible()
    page.locator("details").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")
    for button in page.get_by_role("button", name="Paragraph").all():
        button.click()
    expect(page.get_by_role("mark").first).to_be_visible()
    more = page.get_by_role("button", name="Show the text")
    for _ in range(more.count()):
        more.first.click()
    expect(more).to_have_count(0)
    for tab in page.get_by_role("tab").all():
        tab.click()
    is_unharmed(page)


def test_a_token_of_a_megabyte_is_cut(browse, harm):
    page = opened(browse, f"{harm}/search?trigger=WWWWWWWW")
    expect(page.get_by_role("region", name="Results")).to_contain_text("W" * 50)
    assert len(page.get_by_role("main").inner_text()) < 300_000
    for path in ("/index.json", "/L0.json", "/L1.json", "/L2.json", "/L0/3.json", "/search.json?trigger=W"):
        assert len(json.dumps(twin_of(page, path))) < 1_000_000, path
    is_unharmed(page)


def test_a_search_shows_it_as_text(browse, harm):
    browse.expects("status of 400")
    page = opened(browse, f"{harm}/search?trigger=%3Cscript%3E")
    expect(page.get_by_role("region", name="Results")).to_contain_text("<script>window.__hit")
    is_unharmed(page)
    for query in ("promotes=%3Cimg", "pattern=%3CIMG", "trigger=%00&layers=0,1", "kind=%3Cb%3E"):
        page.goto(f"{harm}/search?{query}")
        expect(page.locator("table.results, .empty, .problem").first).to_be_visible()
        is_unharmed(page)


def test_a_prompt_shows_it_as_text(browse, harm):
    """The response is changed on its way, since the tokenizer spells no hostile tokens."""

    def worse(route):
        reading = route.fetch().json()
        reading["tokens"] = [HARM[i % len(HARM)] for i, _ in enumerate(reading["tokens"])]
        reading["spellings"] = {number: HARM[int(number) % len(HARM)] for number in reading["spellings"]} | {"9": LONG}
        for i, choice in enumerate(reading["distribution"]):
            choice["token"] = LONG if i == 2 else HARM[i % len(HARM)]
        for step in reading["steps"]:
            step["before"]["token"], step["case"] = LONG, "<b>case"
            for memory in step["memories"]:
                memory["promotes"] = HARM
        route.fulfill(body=json.dumps(reading), content_type="application/json")

    def worse_memories(route):
        ranked = route.fetch().json()
        ranked["tokens"], ranked["target"]["token"] = [SCRIPT] * len(ranked["tokens"]), LONG
        for i, memory in enumerate(ranked["memories"]):
            memory["promotes"] = HARM if i else [LONG, *HARM]
        ranked["memories"][1]["coefficient"] = None
        route.fulfill(body=json.dumps(ranked), content_type="application/json")

    def before(page):
        page.add_init_script(WATCH)
        page.route("**/prompt.json*", worse)
        page.route("**/memories.json*", worse_memories)

    query = "zero=L1.2&a=a&b=b&new_tokens=3&by=effect"
    page = browse(f"{harm}/prompt?text=%3Cscript%3Ealert(1)%3C/script%3E&{query}", before=before)
    expect(page.get_by_role("grid")).to_contain_text("<script>window.__hit")
    expect(page.get_by_text("the difference of their logits")).to_be_visible()
    expect(page.locator("[aria-busy]")).to_have_count(0)
    ranking = page.get_by_text("Ranked by effect")
    expect(ranking).to_contain_text("the token predicted after <script>window.__hit=1;alert(1)</script>,")
    page.get_by_role("gridcell").nth(20).focus()
    expect(page.get_by_role("tooltip")).to_be_visible()
    is_unharmed(page)


def test_annotating_shows_it_as_text(browse, harm):
    page = opened(browse, f"{harm}/annotate")
    expect(page.get_by_role("main")).to_contain_text(PERSON)
    page.get_by_role("link", name=PERSON).click()
    expect(page.get_by_role("list", name="Prefixes")).to_contain_text("<script>window.__hit")
    is_unharmed(page)


def test_what_a_hostile_person_drafted_is_shown_as_text(browse, harm):
    page = opened(browse, f"{harm}/annotate?annotator={quote(PERSON)}&memory=L1.0")
    expect(page.get_by_label("Description of pattern 1")).to_be_visible()
    page.get_by_text("Figure 2 so far").click()
    expect(page.locator("details canvas")).to_be_visible()
    is_unharmed(page)


def test_an_error_obeys_nothing(browse, harm):
    browse.expects("status of 4")
    page = opened(browse, f"{harm}/annotate?annotator=%00%E2%80%AE%3Cimg%20src=x%20onerror=alert(1)%3E")
    expect(page.get_by_role("alert")).to_be_visible()
    is_unharmed(page)
    for path in ("/%3Cscript%3Ealert(1)%3C/script%3E", "/L1/99", "/L1/%E2%80%AE", "/search%00"):
        page.goto(f"{harm}{path}")
        expect(page.get_by_role("heading", name="This page cannot be shown")).to_be_visible()
        is_unharmed(page)


@pytest.mark.parametrize("name", ["patterns", "cases"])
def test_a_figures_page_shows_it_as_text(browse, hostile, name):
    page = opened(browse, (hostile / "figures" / f"{name}.html").as_uri())
    expect(page.locator("#figure canvas")).to_be_visible()
    assert is_drawn(page.locator("#figure canvas"))
    assert page.evaluate("document.querySelectorAll('img, svg, iframe, [onerror], [onload]').length") == 0
    assert page.evaluate("document.scripts.length") == 3
    assert page.evaluate("window.__hit") is None


def test_a_figures_page_says_what_is_under_the_mouse(browse, hostile):
    page = browse((hostile / "figures" / "cases.html").as_uri())
    canvas = page.locator("#figure canvas")
    box = canvas.bounding_box()
    for step in range(20):
        page.mouse.move(box["x"] + 60 + 20 * step, box["y"] + box["height"] - 80)
        if page.get_by_role("tooltip").is_visible():
            break
    expect(page.get_by_role("tooltip")).to_contain_text("share of examples")


def test_a_figures_page_refuses_scripts_that_are_not_its_own(browse, hostile):
    browse.expects("policy")
    browse.expects("Content Security Policy")
    page = browse((hostile / "figures" / "cases.html").as_uri())
    page.evaluate("""() => {
      const script = document.createElement("script");
      script.textContent = "window.__hit = 1";
      document.body.append(script);
      document.body.insertAdjacentHTML("beforeend", '<p style="color: red" onclick="window.__hit = 1">x</p>');
    }""")
    page.get_by_text("x", exact=True).click()
    assert page.evaluate("window.__hit") is None
    assert page.evaluate("getComputedStyle(document.querySelector('p')).color") == "rgb(26, 26, 26)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_shows_it_as_text(browse, hostile, scheme):
    page = opened(browse, (hostile / "report.html").as_uri(), scheme=scheme)
    expect(page.get_by_role("main")).to_contain_text("<script>window.__hit")
    expect(page.get_by_role("heading", level=1)).to_contain_text(IMAGE)
    assert page.evaluate("document.scripts.length") == 0
    assert (
        page.evaluate("document.querySelectorAll('img:not([src^=\"data:image/svg+xml;base64,\"]), [onerror]').length")
        == 0
    )
    assert page.evaluate("window.__hit") is None
    fits(page)
    page.set_viewport_size({"width": 400, "height": 800})
    fits(page)


def test_an_export_shows_it_as_text(browse, hostile, tmp_path):
    out = tmp_path / "site"
    export(hostile, out, names="L0.3,L1.4")
    for path in ("index.html", "L0/index.html", "L0/3.html", "L1/4.html", "search.html?q=%3Cscript%3E"):
        page = opened(browse, f"{out.as_uri()}/{path}")
        expect(page.get_by_role("main")).to_contain_text("<script>window.__hit")
        is_unharmed(page)
    for query in ("%3CIMG", "%E2%80%AE", "%22%3E%3Csvg", "W", "%00"):
        page.goto(f"{out.as_uri()}/search.html?q={query}")
        expect(page.locator("table.results, .empty").first).to_be_visible()
        is_unharmed(page)
    assert (out / "search.html").stat().st_size < 2_000_000
