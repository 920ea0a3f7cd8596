"""A sheet as CSV: for each memory, rows for the descriptions of its patterns and a row for each prefix, to be marked.

Corpus text is untrusted: a spreadsheet must not interpret it as a formula. Changes that spreadsheets make to a file are
expected: another delimiter, other quotes, additional blank rows and columns, another column order, damaged letters.
"""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ffscope.annotating.entries import NONE, Entry, EntryPattern, FilledSheet, instructions
from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import KINDS, MOST, Pattern
from ffscope.queries.prefixes import Place, Trigger
from ffscope.tokens import visible

COLUMNS = ("memory", "row", "mark", "text", "token", "next", "place")
_NEEDED = set(COLUMNS[:4])
_NOTE, _ANNOTATOR = "note", "annotator"
_ROW = re.compile(r"(pattern|prefix)\s*(\d{1,4})", re.ASCII | re.IGNORECASE)
_PLACE = re.compile(r"s(\d{1,12})p(\d{1,12})", re.ASCII | re.IGNORECASE)
_CROSSES = {"x", "✓", "✔"}
_LOST = "\N{REPLACEMENT CHARACTER}"
# At the start of a cell, or of what becomes a cell if the file is split at semicolons.
_FORMULA = re.compile(r'(^|;)([\s"]*)(?=[=+\-@\t\r])')


def format_sheet(annotator: str, triggers: dict[Memory, list[Trigger]], command: str) -> bytes:
    """An empty sheet for some memories."""
    sheet = io.StringIO()
    writer = csv.DictWriter(sheet, COLUMNS, lineterminator="\r\n")
    writer.writeheader()
    for row in _rows(annotator, triggers, command):
        writer.writerow({column: harmless(cell) for column, cell in row.items()})
    return sheet.getvalue().encode(
        "utf-8-sig"
    )  # with the byte-order mark, without which Excel assumes another encoding


def harmless(cell: str) -> str:
    """A cell that no spreadsheet interprets as a formula: what begins like one gets an apostrophe in front."""
    return _FORMULA.sub(r"\1\2'", cell)


def _rows(annotator: str, triggers: dict[Memory, list[Trigger]], command: str) -> Iterator[dict[str, str]]:
    for note in (
        f"In the rows pattern 1 to pattern {MOST}, describe in the column text what prefixes share, and write "
        f"{KINDS[0]} or {KINDS[1]} in the column mark.",
        "In the rows prefix 1, prefix 2 …, write in the column mark the numbers of the prefix's patterns, separated by spaces: 1 3",
        f"If you found no pattern, write {NONE} in the column text of the row pattern 1. A memory left blank is not counted.",
        "Leave the other cells unchanged, and save as CSV UTF-8.",
        *instructions(command),
    ):
        yield {"row": _NOTE, "text": note}
    yield {
        "row": _ANNOTATOR,
        "text": f"{_ANNOTATOR}: {annotator}",
    }  # with a label, so that no name is read as a number or a date
    for memory, memory_triggers in triggers.items():
        yield {}
        for number in range(1, MOST + 1):
            yield {"memory": str(memory), "row": f"pattern {number}"}
        for trigger in memory_triggers:
            yield {
                "memory": str(memory),
                "row": f"prefix {trigger.rank}",
                "text": visible(trigger.before, longest=None),
                "token": visible(trigger.token, longest=None),
                "next": visible(trigger.next_token, longest=None),
                "place": f"s{trigger.sentence}p{trigger.position}",
            }


@dataclass
class _Block:
    """The rows of one memory: its patterns and prefixes by number, each with its row number and the cells that count."""

    row: int
    patterns: dict[int, tuple[int, str, str]] = field(default_factory=dict)
    prefixes: dict[int, tuple[int, str, str]] = field(default_factory=dict)

    @property
    def none(self) -> bool:
        """Whether a row says that there is no pattern."""
        return len(self.described) < len(self.patterns)

    @property
    def described(self) -> dict[int, tuple[int, str, str]]:
        return {i: row for i, row in sorted(self.patterns.items()) if (row[2] or row[1]).casefold() != NONE}


def parse_sheet(content: bytes) -> FilledSheet:
    """A filled-in CSV sheet. Problems give row numbers as a spreadsheet shows them."""
    problems: list[str] = []
    annotator, blocks = None, dict[str, _Block]()
    for number, row in _records(_decoded(content)):
        kind = row["row"].casefold()
        if kind == _ANNOTATOR:
            annotator = row["text"].partition(":")[2].strip()
        elif kind != _NOTE and any(row.values()):
            problem = _place_row(blocks, number, row)
            problems += [f"row {number}: {problem}"] if problem else []
    entries = [_entry(name, block, problems) for name, block in blocks.items()]
    return FilledSheet(annotator, entries, problems)


def _decoded(content: bytes) -> str:
    # A letter that is not UTF-8 is lost. This matters, and is reported, only in what a person wrote.
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    return content.decode("utf-16" if wide else "utf-8-sig", errors="replace")


def _records(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Every row below the header, as a dict, with its number. The delimiter is the one that splits the header."""
    broken = None
    for delimiter in ",;\t":
        records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            rows = [[cell.strip() for cell in record] for record in records]
        except csv.Error as error:  # perhaps only because of the wrong delimiter
            broken = error
            continue
        for i, row in enumerate(rows):
            names = [cell.casefold() for cell in row]
            if set(names) >= _NEEDED:
                yield from ((j, _by_name(names, cells)) for j, cells in enumerate(rows[i + 1 :], i + 2))
                return
    if broken:
        raise InputError(f"The sheet cannot be read as CSV: {broken}. Save it again as CSV UTF-8.") from broken
    raise InputError(
        f"The sheet has no header. Expected a row with the columns {', '.join(COLUMNS)}, separated by commas, semicolons or tabs."
    )


def _by_name(names: list[str], cells: list[str]) -> dict[str, str]:
    row = dict.fromkeys(COLUMNS, "")
    row.update((name, cell) for name, cell in zip(names, cells, strict=False) if name in row)
    return row


def _place_row(blocks: dict[str, _Block], number: int, row: dict[str, str]) -> str | None:
    """Add a row to the block of its memory; returns the problem if that is impossible."""
    match = _ROW.fullmatch(row["row"])
    if match is None or not row["memory"]:
        return (
            "it belongs to no memory. Expected a name such as L3.17 in the column memory, and pattern 1 or prefix 1 in "
            "the column row."
        )
    name, i = row["memory"].upper(), int(match[2])
    block = blocks.setdefault(name, _Block(number))
    if match[1].casefold() == "prefix":
        rows, cells = block.prefixes, (number, row["mark"], row["place"])
    elif not (row["mark"] or row["text"]):
        return None
    else:
        rows, cells = block.patterns, (number, row["mark"], row["text"])
    if i in rows:
        return f"{name} has {match[0].lower()} already, in row {rows[i][0]}. Remove one of them."
    rows[i] = cells
    return None


def _entry(name: str, block: _Block, problems: list[str]) -> Entry:
    described = block.described
    covers: dict[int, list[int]] = {number: [] for number in described}
    for rank, (row, mark, _) in block.prefixes.items():
        for number in _marks(mark, list(described)):
            if number in covers:
                covers[number].append(rank)
            else:
                problems.append(f"{name}, row {row}: {_mark_problem(mark, number, block)}")
    entry_patterns = []
    for number, (row, kind, text) in described.items():
        if _LOST in text:
            problems.append(
                f"{name}, row {row}: {text!r} contains a damaged letter. Write it again, and save as CSV UTF-8."
            )
        entry_patterns.append(EntryPattern(f"row {row}", Pattern(kind.casefold(), text, tuple(covers[number]))))
    places = {rank: _place(place) for rank, (_, _, place) in block.prefixes.items()}
    return Entry(name, f"row {block.row}", entry_patterns, block.none, places)


def _marks(mark: str, described: list[int]) -> list[int | None]:
    """The patterns that a prefix is marked with: `1 3`, `1,3`, `1; 3`, or a cross if there is only one. None: not a number."""
    if mark.casefold() in _CROSSES:
        return [described[0] if len(described) == 1 else None]
    # A spreadsheet may turn 1 into 1.0, or put an apostrophe in front of it.
    numbers = re.split(r"[\s,;./+&]+", re.sub(r"\.0+$", "", mark.strip("'")).strip(" ,;."))
    return [int(number) if re.fullmatch("[0-9]{1,4}", number) else None for number in numbers if number]


def _mark_problem(mark: str, number: int | None, block: _Block) -> str:
    if block.none:
        return f"it is marked {mark!r}, but the memory is marked {NONE!r}. Remove one of the two."
    if number is None and mark.casefold() in _CROSSES:
        return f"{mark!r} is ambiguous unless there is exactly one pattern. Write the number of the pattern."
    if number is None:
        return f"{mark!r} is not a valid mark. Write the numbers of the prefix's patterns, such as 1 3."
    return f"it is marked {mark!r}, but pattern {number} is not described. Describe it, or remove the mark."


def _place(text: str) -> Place | None:
    """The place in a cell: None if it is empty, (-1, -1) if it cannot be read."""
    match = _PLACE.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else (-1, -1) if text else None
