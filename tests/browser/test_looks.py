"""The layout: every page fits a phone, and is dark where the system is."""

import re

import pytest
from playwright.sync_api import expect

from browser.pages import fits

pytestmark = pytest.mark.browser
# A page, with a text that shows when it is drawn.
PAGES = {
    "/": "How this study was made",
    "/L1": "22 memories",
    "/L1/4?text=The+cat+sat+on+a+mat": "All coefficients",
    "/search?trigger=a&fires=0..1": "memories in",
    "/prompt?text=The+cat+sat+on+a+mat+and+it+flew&zero=L1.3,L2.4&a=a&b=b&new_tokens=5": "The texts differ|Both texts",
    "/annotate": "Your name",
    "/annotate?annotator=ada": "Add a pattern",
    "/L1/99": "This page cannot be shown",
}
BRIGHTNESS = "getComputedStyle({}).{}.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0)"


def test_every_page_fits_a_phone_and_is_dark_where_the_system_is(browse, site):
    browse.expects("status of 404")
    page = browse(site, width=400, height=800, scheme="dark")
    for path, words in PAGES.items():
        page.goto(f"{site}{path}")
        expect(page.get_by_role("main")).to_contain_text(re.compile(words))
        fits(page)
        page.locator("details").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")
        fits(page)
        assert page.evaluate(BRIGHTNESS.format("document.body", "backgroundColor")) < 120, path
        assert page.evaluate(BRIGHTNESS.format("document.querySelector('main')", "color")) > 500, path


def test_the_colour_scheme_can_be_chosen(browse, site):
    def brightness(page):
        return page.evaluate(BRIGHTNESS.format("document.body", "backgroundColor"))

    assert brightness(browse(f"{site}/search")) > 600
    dark = browse(f"{site}/search", scheme="dark")
    dark.get_by_role("button", name="Colours: auto").click()
    assert brightness(dark) > 600
    dark.reload()
    assert brightness(dark) > 600
    dark.get_by_role("button", name="Colours: light").click()
    assert brightness(dark) < 120


# Targets that are smaller than 24 × 24 pixels (WCAG 2.5.8). Links inside a sentence may be.
SMALL = """() => [...document.querySelectorAll("button, input, select, textarea, summary, header a, nav a, a.name")]
  .filter((one) => one.checkVisibility())
  .map((one) => [one.outerHTML.slice(0, 120), one.getBoundingClientRect()])
  .filter(([, box]) => box.width < 24 || box.height < 24).map(([said, box]) => `${said} ${box.width} × ${box.height}`)"""
TARGETS = {
    "/": "How this study was made",
    "/L1": "22 memories",
    "/L1/4?text=The+cat+sat+on+a+mat": "All coefficients",
    "/search?trigger=a&promotes=q": "memories in",
    "/search?promotes=q&all=yes": "Search only the 20 top tokens",
    "/L1/99": "This page cannot be shown",
}


@pytest.mark.parametrize("width", [1440, 400])
def test_everything_that_is_pressed_is_large_enough(browse, site, width):
    browse.expects("status of 404")
    page = browse(site, width=width, height=900)
    for path, words in TARGETS.items():
        page.goto(f"{site}{path}")
        expect(page.get_by_role("main")).to_contain_text(words)
        page.locator("details").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")
        assert page.evaluate(SMALL) == [], path
