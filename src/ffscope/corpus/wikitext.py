"""WikiText's `.tokens` files: splitting into articles, and detokenizing."""

import re
from collections.abc import Iterable, Iterator

_HEADING = re.compile(r"\s*(=(?: =)*) (.+?) \1\s*")
_JOINT = re.compile(r" @([-,.])@ ")
_BEFORE = re.compile(r" ([,.;:!?%)\]}]|'(?:s|t|re|ve|ll|d|m)\b|n't\b)")
_AFTER = re.compile(r"([(\[{$£#]) ")
_QUOTED = re.compile(r"(?<!\S)([\"']) (.+?) \1(?!\w)")


def split_articles(lines: Iterable[str]) -> Iterator[tuple[str | None, list[str]]]:
    """Each article's title and paragraphs, without headings."""
    title: str | None = None
    paragraphs: list[str] = []
    for line in lines:
        heading = _HEADING.fullmatch(line)
        if heading is None:
            if line.strip():
                paragraphs.append(line.strip())
        elif heading[1] == "=":
            if title is not None or paragraphs:
                yield title, paragraphs
            title, paragraphs = detokenize(heading[2]), []
    if title is not None or paragraphs:
        yield title, paragraphs


def detokenize(text: str) -> str:
    """`1 @,@ 000 soldiers ( dead )` as `1,000 soldiers (dead)`; `<unk>` is kept."""
    text = _JOINT.sub(r"\1", f" {text.strip()} ")
    text = _QUOTED.sub(r"\1\2\1", text)
    text = _AFTER.sub(r"\1", _BEFORE.sub(r"\1", text))
    return re.sub(r"(?<=\d) ([–/:]) (?=\d)", r"\1", text).strip()
