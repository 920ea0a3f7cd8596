"""Take the README's pictures of the explorer anew: `.venv/bin/python docs/screenshots.py STUDY DEMO_STUDY`.

STUDY is one of a model whose memory L13.339 is worth a look, as docs/findings.md makes it; DEMO_STUDY is what `make demo` makes.
"""

import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from shutil import which

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent / "explorer"
PICTURES = {"memory": "/L13/339", "prompt": "/prompt?text=The+capital+of+France+is&zero=L24.1005&new_tokens=12"}


@contextmanager
def explorer(study: str):
    """A study, served on a free port; gives its address."""
    command = [sys.executable, "-m", "ffscope", "serve", study, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield re.search(r"http\S+", server.stdout.readline())[0].rstrip("/")
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Both of them."""
    HERE.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
        for (name, path), study in zip(PICTURES.items(), sys.argv[1:], strict=True):
            with explorer(study) as address:
                page = browser.new_page(viewport={"width": 1440, "height": 1000}, color_scheme="light")
                page.goto(address + path)
                page.wait_for_load_state("networkidle", timeout=120_000)
                page.get_by_role("main").get_by_text(
                    "cosine" if name == "memory" else "With interventions"
                ).first.wait_for()
                page.screenshot(path=HERE / f"{name}.png")
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
