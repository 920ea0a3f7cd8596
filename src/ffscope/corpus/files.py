"""The files of a corpus and their formats."""

import glob
from pathlib import Path

from ffscope.errors import CorpusError

KINDS = (".txt", ".jsonl", ".parquet", ".tokens")
COMPRESSIONS = (".gz", ".xz", ".zst")


def find_files(source: str) -> list[Path]:
    """The files that a path, folder or glob matches, sorted by name."""
    path = Path(source).expanduser()
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and kind_of(file))
        if not files:
            raise CorpusError(f"The folder {source} has no text files. Expected {_expected()} files in it.")
        return files
    if path.is_file():
        return [path]
    files = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file())
    if not files:
        raise CorpusError(
            f"There is no corpus {source!r}. Expected a {_expected()} file (also {', '.join(COMPRESSIONS)}), a folder or glob "
            "of such files, hf:NAME, or the bundled vital-articles."
        )
    return files


def kind_of(file: Path) -> str | None:
    """The format by suffix: `.jsonl` for `wiki.jsonl.xz`; None if it is not a supported one."""
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in KINDS else None


def checked_kind(file: Path) -> str:
    """The format of a file; raises if it is not a supported one."""
    kind = kind_of(file)
    if kind is None:
        raise CorpusError(
            f"{file} has an unsupported suffix. Expected {_expected()}, optionally compressed as {', '.join(COMPRESSIONS)}."
        )
    return kind


def stored_bytes(files: list[Path]) -> int:
    """About how many bytes of text some files have; a compressed one has some four times its size."""
    return sum(file.stat().st_size * (4 if file.suffix.lower() in COMPRESSIONS else 1) for file in files)


def _expected() -> str:
    return f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"
