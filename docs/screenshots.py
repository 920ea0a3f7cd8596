"""Take the pictures of the explorer anew, of the study that docs/tutorial.py makes: `.venv/bin/python docs/screenshots.py`."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

from tutorial import STUDY

HERE = Path(__file__).parent / "explorer"
PICTURES = {  # name → address, and a text that is there when the page is complete
    "memory": ("/L25/168", "cosine"),
    "prompt": ("/prompt?text=The+capital+of+France+is&zero=L24.1005&new_tokens=12", "With interventions"),
}


@contextmanager
def explorer(study: Path) -> Iterator[str]:
    """The address of a study, served on a free port."""
    command = [sys.executable, "-m", "ffscope", "serve", str(study), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = re.search(r"http\S+", server.stdout.readline())
        assert address is not None
        yield address[0].rstrip("/")
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """All of them."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, explorer(STUDY) as address:
        browser = playwright.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
        for name, (path, last) in PICTURES.items():
            page = browser.new_page(viewport={"width": 1440, "height": 1000}, color_scheme="light")
            page.goto(address + path)
            page.wait_for_load_state("networkidle", timeout=240_000)
            page.get_by_role("main").get_by_text(last).first.wait_for(timeout=240_000)
            page.screenshot(path=HERE / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
