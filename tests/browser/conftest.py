import os
import shutil

import pytest

from browser.pages import Browsing, new_context
from explorer import app_of, served, tiny_model
from studies import copy_of

# The headless shell draws no window of its own, and needs half the time.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser"))), None)


# Package scope, not session: a running Playwright occupies the thread's event loop, which other tests need.
@pytest.fixture(scope="package")
def chromium():
    """A headless browser; without one the tests skip, or fail where FFSCOPE_NEED_BROWSER is set."""
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
    """A copy of the study's folder, which a test may change."""
    return shutil.copytree(study.folder, tmp_path / "study")


@pytest.fixture(scope="package")
def model(tokenizer):
    """The studied model, to compute in Python what a page shows."""
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
def comparison(chromium, compared):
    """The address of the explorer of a study that is compared with another, without the model."""
    with served(app_of(compared / "both" / "b")) as address:
        yield address


@pytest.fixture(scope="package")
def leaks(chromium, secretive):
    """The address of the explorer of a study with leaks, without the model."""
    with served(app_of(secretive.study.folder)) as address:
        yield address


@pytest.fixture(scope="package")
def common(chromium):
    """The browser context that tests share."""
    context = new_context(chromium)
    yield context
    context.close()


@pytest.fixture
def browse(chromium, common):
    """Opens pages; fails the test on an error in a page, a violation of the policy or a request to another host."""
    browsing = Browsing(chromium, common)
    yield browsing
    assert browsing.close() == []
