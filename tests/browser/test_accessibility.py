"""Every page passes axe-core and has large enough targets, in light and dark, on a desktop and on a phone."""

import re
from collections import defaultdict

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from browser.test_looks import PAGES
from ffscope.web.export import export

pytestmark = pytest.mark.browser
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SIZES = {1440: 900, 400: 800}
REPORT = "report.html"
# Files of an export and the report, with a text that shows when they are drawn.
FILES = {
    "index.html": "How this study was made",
    "L1/index.html": "22 memories",
    "L1/4.html": "Similar memories",
    "search.html?q=a": "66 memories",
    REPORT: "In short",
}
COMPARISON = {
    "/diff": "before → after",
    "/diff?sort=triggers_kept&layer=1": "before → after",
    "/L2/7": "Similar memories",
}
AXE = Axe()
# Targets smaller than 24 × 24 pixels (WCAG 2.5.8), apart from links in running text and hidden elements.
SMALL_TARGETS = """() => {
  const kinds = "a[href], button, input, select, textarea, summary, [role=button], [role=tab], [role=gridcell][tabindex]";
  const block = (element) => {
    while (getComputedStyle(element).display.startsWith("inline") || element.tagName === "BDI") element = element.parentElement;
    return element;
  };
  const ownText = (element) => [...element.childNodes].map((node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    return node.nodeType === Node.ELEMENT_NODE && !node.matches(kinds) ? ownText(node) : "";
  }).join("");
  const inText = (target) => target.matches("a") && getComputedStyle(target).display === "inline"
    && /[\\p{L}\\p{N}]/u.test(ownText(block(target)));
  return [...document.querySelectorAll(kinds)].flatMap((target) => {
    const { width, height, left, right } = (target.closest("label") ?? target).getBoundingClientRect();
    const seen = target.checkVisibility({ visibilityProperty: true }) && width > 0 && right > 0 && left < 5000;
    if (!seen || Math.min(width, height) > 23.9 || inText(target)) return [];
    const name = target.ariaLabel || target.textContent.trim() || target.name || target.tagName;
    const size = `${width.toFixed(1)} × ${height.toFixed(1)}`;
    return [`${size}, below 24 × 24: ${target.localName}.${target.className} ${name.slice(0, 30)}`];
  });
}"""


@pytest.fixture(scope="module")
def files(study, tmp_path_factory):
    """The address of an export with a memory, and the report beside it."""
    out = tmp_path_factory.mktemp("accessible") / "site"
    export(study.folder, out, names="L0.3,L1.4")
    (out / REPORT).write_bytes((study.folder / REPORT).read_bytes())
    return out.as_uri()


def drawn(page, words):
    """Wait until the page is drawn, and open all its details."""
    expect(page.locator("body")).to_contain_text(re.compile(words))
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    page.locator("details").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")


def violations(page):
    """What axe-core finds wrong: the rule, what is wrong, and where."""
    # Stylesheets are not preloaded, and passes are not reported: describing them takes longer than finding the violations.
    options = {"runOnly": RULES, "preload": False, "resultTypes": ["violations"]}
    results = AXE.run(page, options=options).response
    return [
        f"{rule['id']}: {(node['failureSummary'] or rule['help'])[:250]}: {node['html'][:150]}"
        for rule in results["violations"]
        for node in rule["nodes"]
    ]


def faults(browse, address, words, looks):
    """Every fault of a page, with the colour schemes and widths at which it shows."""
    browse.expects("status of 404")
    where = defaultdict(dict)  # the looks with a fault, each once
    for scheme, width in looks:
        page = browse(address, scheme=scheme, width=width, height=SIZES[width], bypass_csp=True)
        drawn(page, words)
        for fault in violations(page) + page.evaluate(SMALL_TARGETS):
            where[fault][f"{scheme} {width} px"] = True
    return "\n".join(f"{fault} ({', '.join(places)})" for fault, places in where.items())


# Every colour scheme and every width once; the other two pairs would double the time.
LOOKS = [(("light", 1440), ("dark", 400)), pytest.param((("light", 400), ("dark", 1440)), marks=pytest.mark.slow)]


@pytest.mark.parametrize("looks", LOOKS, ids=["usual", "other"])
@pytest.mark.parametrize("path", PAGES)
def test_a_served_page_is_accessible(browse, site, path, looks):
    wrong = faults(browse, f"{site}{path}", PAGES[path], looks)
    assert not wrong, wrong


@pytest.mark.parametrize("looks", LOOKS, ids=["usual", "other"])
@pytest.mark.parametrize("path", FILES)
def test_a_file_is_accessible(browse, files, path, looks):
    wrong = faults(browse, f"{files}/{path}", FILES[path], looks)
    assert not wrong, wrong


@pytest.mark.parametrize("looks", LOOKS, ids=["usual", "other"])
@pytest.mark.parametrize("path", COMPARISON)
def test_a_comparison_is_accessible(browse, comparison, path, looks):
    wrong = faults(browse, f"{comparison}{path}", COMPARISON[path], looks)
    assert not wrong, wrong


@pytest.mark.parametrize("looks", LOOKS, ids=["usual", "other"])
@pytest.mark.parametrize("path", ["/leaks", "/leaks?kind=phrase"])
def test_leaks_are_accessible(browse, leaks, path, looks):
    wrong = faults(browse, f"{leaks}{path}", "What the model gives away", looks)
    assert not wrong, wrong
