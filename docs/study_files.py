"""Write the table of a study's files in docs/contract.md anew, from what the stages declare."""

from pathlib import Path

from ffscope.stages.documentation import file_lines

CONTRACT = Path(__file__).with_name("contract.md")


def updated(text: str) -> str:
    """The contract with one line for every parquet file, in place of the old ones."""
    lines = text.splitlines()
    is_file = [line.startswith("| ") and ".parquet | " in line for line in lines]
    first = is_file.index(True)
    others = [line for line, old in zip(lines, is_file, strict=True) if not old]
    return "\n".join([*others[:first], *file_lines(), *others[first:]]) + "\n"


def main() -> None:
    """Write it."""
    CONTRACT.write_text(updated(CONTRACT.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
