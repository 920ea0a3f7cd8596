"""What the tests of the pages share: a watched browser, and numbers and tables as a page shows them."""

import re
from urllib.parse import urlsplit

from playwright.sync_api import expect

expect.set_options(timeout=10_000)  # a page is drawn at once; the machine may be busy
_OWN = ("data:", "blob:", "about:")
# What the policy refuses is an event of the page as well as a line in the console.
_TELL_REFUSALS = """document.addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI }) =>
  console.error(`The policy refused ${effectiveDirective} ${blockedURI}`));"""
_NO_CHARTS = "globalThis.vegaEmbed = async () => ({ view: { finalize() {}, addEventListener() {} } });"


class Browsing:
    """Opens pages, each in a browser of its own that knows nothing of the others, and keeps what went wrong in them."""

    def __init__(self, chromium):
        self.chromium, self.contexts, self._troubles, self._expected = chromium, [], [], []

    def __call__(self, address, *, width=1280, height=900, scheme="light", charts=False, before=None, **options):
        """A page; `before(page)` is called before it is opened. Charts take a second, so that few tests have them drawn."""
        context = self.chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce", **options
        )
        context.set_default_timeout(10_000)
        context.add_init_script(_TELL_REFUSALS)
        self.contexts.append(context)
        self._watch(context, address)
        page = context.new_page()
        if not charts:
            page.route("**/static/vega.js", lambda route: route.fulfill(body=_NO_CHARTS, content_type="text/javascript"))
        if before is not None:
            before(page)
        page.goto(address)
        return page

    def _watch(self, context, address):
        home = urlsplit(address)

        def asked(request):
            there = urlsplit(request.url)
            if not request.url.startswith(_OWN) and (there.scheme, there.netloc) != (home.scheme, home.netloc):
                self._troubles.append(f"a request to {request.url[:200]}")

        def talked(dialog):
            self._troubles.append(f"a dialog: {dialog.message}")
            dialog.dismiss()

        context.on("request", asked)
        context.on("dialog", talked)
        context.on("weberror", lambda error: self._troubles.append(f"an error: {error.error}"))
        context.on(
            "console", lambda said: self._troubles.append(f"console: {said.text}") if said.type == "error" else None
        )

    def expects(self, trouble):
        """Something goes wrong on purpose, such as "status of 404"."""
        self._expected.append(trouble)

    def close(self):
        """Every browser is left; gives what went wrong and was not expected."""
        for context in self.contexts:
            context.close()
        return [one for one in self._troubles if not any(re.search(known, one) for known in self._expected)]


def cells(table):
    """The text of a table, row by row, with its heads."""
    return table.evaluate(
        "(table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    )


def numbers(text):
    """The numbers in a text, in its order."""
    return [float(found.replace("−", "-")) for found in re.findall(r"[-−+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", text)]


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


def fits(page):
    """No page is wider than its window."""
    wide, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= window, f"{page.url[:200]} is {wide} pixels wide in a window of {window}"
