import os
import shutil

import pytest

from browser.pages import Browsing, new_context
from explorer import app_of, served, tiny_model
from studies import copy_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


# Of this package and no longer: a running Playwright holds the thread's event loop, which other tests need.
@pytest.fixture(scope="package")
def chromium():
    """A headless browser; tests skip without one, unless FFSCOPE_NEED_BROWSER says that this is a failure."""
    if CHROMIUM is None:
        message = "needs Chromium, which `make browser` installs"
        if os.environ.get("FFSCOPE_NEED_BROWSER"):
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def study(explored, tmp_path_factory):
    """A whole study, which no test changes."""
    return copy_of(explored, tmp_path_factory.mktemp("browser"))


@pytest.fixture
def copy(study, tmp_path):
    """The folder of a study of one's own."""
    return shutil.copytree(study.folder, tmp_path / "study")


@pytest.fixture(scope="package")
def model(tokenizer):
    """The model that was studied, to ask in Python what a page shows."""
    return tiny_model(tokenizer)


@pytest.fixture(scope="package")
def site(chromium, study, tokenizer):
    """The address of the study's explorer, with the model."""
    with served(app_of(study.folder, tokenizer)) as address:
        yield address


@pytest.fixture(scope="package")
def still(chromium, study):
    """The same without the model."""
    with served(app_of(study.folder)) as address:
        yield address


@pytest.fixture(scope="package")
def common(chromium):
    """The browser that tests share."""
    context = new_context(chromium)
    yield context
    context.close()


@pytest.fixture
def browse(chromium, common):
    """Opens pages. Whatever goes wrong in one of them is a failure: an error, a refusal of the policy, a request elsewhere."""
    browsing = Browsing(chromium, common)
    yield browsing
    assert browsing.close() == []
