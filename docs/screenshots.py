"""Take the pictures of the explorer anew, of the study that docs/tutorial.py makes: `.venv/bin/python docs/screenshots.py`."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

from tutorial import STUDY

HERE = Path(__file__).parent / "explorer"
CHROMIUM = next(filter(None, map(which, ("chromium-headless-shell", "chromium", "chromium-browser"))), None)
PICTURES = {
    "memory": "/L25/168",
    "prompt": "/prompt?text=The+capital+of+France+is&zero=L24.1005&new_tokens=12",
}


@contextmanager
def explorer(study: Path) -> Iterator[str]:
    """The address of a study, served on a free port, when its model is loaded."""
    command = [sys.executable, "-m", "ffscope", "serve", str(study), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = re.search(r"http\S+", server.stdout.readline())
        assert address is not None
        server.stdout.readline()  # printed when the model is loaded
        yield address[0].rstrip("/")
    finally:
        server.terminate()
        server.wait()


def wait_until_settled(page: Any) -> None:
    """Wait until the text of the page has stayed the same for three seconds."""
    text, since = "", time.monotonic()
    while time.monotonic() - since < 3:
        page.wait_for_timeout(500)
        if page.inner_text("main") != text:
            text, since = page.inner_text("main"), time.monotonic()


def main() -> None:
    """All of them."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, explorer(STUDY) as address:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, path in PICTURES.items():
            page = browser.new_page(viewport={"width": 1440, "height": 1000}, color_scheme="light")
            page.goto(address + path)
            page.wait_for_load_state("networkidle", timeout=240_000)
            wait_until_settled(page)
            page.screenshot(path=HERE / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
