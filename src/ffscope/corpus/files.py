"""The files of a corpus: which they are, and of what kind."""

import glob
from pathlib import Path

from ffscope.errors import CorpusError

KINDS = (".txt", ".jsonl", ".parquet", ".tokens")
PACKINGS = (".gz", ".xz", ".zst")


def find_files(source: str) -> list[Path]:
    """The files that a path, a folder or a glob names, in the order of their names."""
    path = Path(source).expanduser()
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.is_file() and kind_of(file))
        if not found:
            raise CorpusError(f"The folder {source} holds no text. Expected {_expected()} files in it.")
        return found
    if path.is_file():
        return [path]
    found = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file())
    if not found:
        raise CorpusError(
            f"There is no corpus {source!r}. Name a {_expected()} file (also {', '.join(PACKINGS)}), a folder or glob of "
            "them, hf:NAME, or the bundled vital-articles."
        )
    return found


def kind_of(file: Path) -> str | None:
    """`.jsonl` for `wiki.jsonl.xz`; None for what is not text we read."""
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in PACKINGS:
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in KINDS else None


def checked_kind(file: Path) -> str:
    """The kind of a file that was asked for by name."""
    kind = kind_of(file)
    if kind is None:
        raise CorpusError(
            f"{file} is of no known kind. Expected {_expected()}, or one of them with {', '.join(PACKINGS)}."
        )
    return kind


def _expected() -> str:
    return f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"
