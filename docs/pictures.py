"""Draw the pictures of the README anew: `.venv/bin/python docs/pictures.py`."""

import re
from pathlib import Path

from rich.console import Console

from ffscope import cli, load
from ffscope.analysis.trace import tell

HERE = Path(__file__).parent


def main() -> None:
    """The story of one prompt, as the terminal shows it."""
    text = "The capital of France is"
    story = tell(load("smollm2-135m"), text, layers=[0, 8, 16, *range(24, 30)], memories=2)
    cli.out = Console(record=True, width=96, highlight=False, force_terminal=True)
    cli._print_story(story)
    title = f'ffscope trace smollm2-135m "{text}" --layers 0,8,16,24-29 --memories 2'
    picture = cli.out.export_svg(title=title)
    # The fonts it would fetch: a picture must not ask the network.
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    (HERE / "trace.svg").write_text(picture)


if __name__ == "__main__":
    main()
