"""Helpers of the page tests: a browser that records errors, and numbers and tables as a page shows them."""

import re
from urllib.parse import urlsplit

from playwright.sync_api import expect

expect.set_options(timeout=30_000)  # a page is drawn at once; the machine may be busy
_OWN = ("data:", "blob:", "about:")
# A violation of the policy is an event of the page as well as a line in the console.
_TELL_REFUSALS = """document.addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI }) =>
  console.error(`The policy refused ${effectiveDirective} ${blockedURI}`));"""


def new_context(chromium, *, width=1280, height=900, scheme="light", **more):
    """A browser context that shares nothing with the others."""
    viewport = {"width": width, "height": height}
    context = chromium.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce", **more)
    context.set_default_timeout(30_000)
    context.add_init_script(_TELL_REFUSALS)
    return context


class Browsing:
    """Opens pages and records what goes wrong in them.

    The first page of a test opens in a context that all tests share, which halves the time. Every other page, and one with
    options, gets a context of its own.
    """

    def __init__(self, chromium, common):
        self.chromium, self.common = chromium, common
        self.contexts, self.pages, self._troubles, self._expected = [], [], [], []

    def __call__(self, address, *, before=None, **options):
        """A page; `before(page)` is called before it is opened."""
        page = self._context(options).new_page()
        self.pages.append(page)
        self._watch(page, address)
        if before is not None:
            before(page)
        page.goto(address)
        return page

    def _context(self, options):
        if not self.pages and not options:
            return self.common
        self.contexts.append(new_context(self.chromium, **options))
        return self.contexts[-1]

    def _watch(self, page, address):
        home = urlsplit(address)

        def on_request(request):
            there = urlsplit(request.url)
            if not request.url.startswith(_OWN) and (there.scheme, there.netloc) != (home.scheme, home.netloc):
                self._troubles.append(f"a request to {request.url[:200]}")

        def on_dialog(dialog):
            self._troubles.append(f"a dialog: {dialog.message}")
            dialog.dismiss()

        def on_console(message):
            if message.type == "error":
                self._troubles.append(f"console: {message.text}")

        page.on("request", on_request)
        page.on("dialog", on_dialog)
        page.on("console", on_console)
        page.on("pageerror", lambda error: self._troubles.append(f"an error: {error}"))

    def expects(self, trouble):
        """Expect an error, such as "status of 404"."""
        self._expected.append(trouble)

    def close(self):
        """Close every page and return the unexpected errors."""
        for opened in [*self.pages, *self.contexts]:
            opened.close()
        return [trouble for trouble in self._troubles if not any(re.search(known, trouble) for known in self._expected)]


def cells(table):
    """The text of a table, row by row, with its header."""
    return table.evaluate(
        "(table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    )


def numbers(text):
    """The numbers in a text, in its order."""
    return [float(number.replace("−", "-")) for number in re.findall(r"[-−+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", text)]


def twin_of(page, path):
    """A page's JSON."""
    address = urlsplit(page.url)
    return page.request.get(f"{address.scheme}://{address.netloc}{path}").json()


def share(number, digits=1):
    """A share as pages write it."""
    percent = 100 * number
    return f"{percent:.2g} %" if percent and abs(percent) < 0.1 else f"{percent:.{digits}f} %"


def is_drawn(canvas):
    """Whether something was painted on it."""
    return canvas.evaluate(
        """(canvas) => canvas.width > 0 &&
        canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((part) => part > 0)"""
    )


def is_linked(browse, name, path, address, without):
    """A page is linked from every page of a study that has it, and from none of a study that does not."""
    page = browse(address)
    page.get_by_role("link", name=name).click()
    expect(page).to_have_url(f"{address}/{path}")
    other = browse(f"{without}/search")
    expect(other.get_by_role("link", name="Overview")).to_be_visible()
    expect(other.get_by_role("link", name=name)).to_have_count(0)


def fits(page):
    """No page is wider than its window."""
    wide, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= window, f"{page.url[:200]} is {wide} pixels wide in a window of {window}"
