"""Terms are explained once on every page, by pointer, keyboard and touch."""

import pytest
from playwright.sync_api import expect

from ffscope.glossary import GLOSSARY
from ffscope.web.export import export

pytestmark = pytest.mark.browser
PAGES = {
    "/": ("memory", "prefix", "trigger", "value", "key"),
    "/L1": ("memory", "prefix", "coefficient", "trigger", "value"),
    "/L1/4": ("key", "memory", "prefix", "coefficient", "trigger", "value", "agreement", "lens"),
    "/search": ("memory", "trigger", "value", "pattern"),
    "/prompt": ("memory", "coefficient", "output", "residual", "lens"),
    "/annotate": ("trigger", "memory"),
}


def explained(page, name):
    """The button of a term."""
    return page.locator(f"button[aria-describedby=term-{name}]")


@pytest.mark.parametrize(("path", "names"), PAGES.items())
def test_every_page_explains_its_terms_once(browse, site, path, names):
    page = browse(f"{site}{path}")
    for name in names:
        expect(explained(page, name)).to_have_count(1)
        expect(explained(page, name)).to_have_accessible_description(GLOSSARY[name])


def test_an_explanation_shows_on_hover_focus_and_click(browse, site):
    page = browse(f"{site}/L1")
    tip = page.get_by_role("tooltip")
    explained(page, "prefix").focus()
    expect(tip).to_have_text(GLOSSARY["prefix"])
    page.keyboard.press("Escape")
    expect(tip).to_have_count(0)
    explained(page, "memory").hover()
    expect(tip).to_have_text(GLOSSARY["memory"])
    page.mouse.move(600, 600)
    expect(tip).to_have_count(0)
    explained(page, "value").click()
    expect(tip).to_have_text(GLOSSARY["value"])
    page.get_by_role("heading", level=1).click()
    expect(tip).to_have_count(0)


def test_an_explanation_shows_on_a_phone(browse, site):
    page = browse(f"{site}/L1", width=400, has_touch=True)
    explained(page, "value").tap()
    box = page.get_by_role("tooltip").bounding_box()
    assert 0 <= box["x"] <= 400 - box["width"]


def test_an_export_explains_terms_too(browse, study, tmp_path):
    export(study.folder, tmp_path / "site", names="L1.4")
    page = browse((tmp_path / "site" / "L1" / "4.html").as_uri())
    explained(page, "coefficient").focus()
    expect(page.get_by_role("tooltip")).to_have_text(GLOSSARY["coefficient"])
