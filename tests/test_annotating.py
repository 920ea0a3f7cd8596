"""Patterns by people: what they write is kept, sheets are read back as filled in, and agreement matches published examples."""

import csv
import io
import itertools
import json
import multiprocessing
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ffscope.annotating import csv_sheet, drafts
from ffscope.annotating.annotate import annotate
from ffscope.annotating.annotator_agreement import alpha, kappa, labels, measure_agreement
from ffscope.annotating.records import normalised, write, write_new
from ffscope.annotating.sheets import choose_memories, draw, parse_memories, read_sheet, write_sheet
from ffscope.cli import app
from ffscope.errors import InputError, MemoryNameError, StudyError
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import Pattern
from ffscope.queries.annotations import FILE, annotators, history, read
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS
from studies import sign_otherwise

HOSTILE = [
    '=cmd|" /C calc"!A0',
    "+1 <script>alert(1)</script>",
    "@sum(1)",
    "-2 a;=1+1",
    "\u202eevil\x1b[31m\nnext",
    "\tx",
]
COUNTS = [5, 4, 3]  # memories of each layer; the last of each never fired, the last but one has few triggers
A, B = Memory(0, 0), Memory(1, 1)
FRUIT, WARS = Pattern("shallow", "ends with “fruit”", (1, 3, 4)), Pattern("semantic", "wars", (2, 3, 25))


def fired(memory):
    """How many triggers a memory has."""
    last = COUNTS[memory.layer] - 1
    return {last: 0, last - 1: 2 + memory.layer}.get(memory.memory, 27)


@pytest.fixture
def study(tmp_path):
    """A study of tables alone: sentence s has the tokens `word`, ` s`, ` end`; trigger r of a memory is in sentence r."""
    folder = tmp_path / "a study's"
    folder.mkdir()
    texts = [HOSTILE[i] if i < len(HOSTILE) else f"word {i}" for i in range(30)]
    sentences = [
        {"sentence": i, "document": 0, "paragraph": i, "text": f"{text} end", "tokens": [0, 1, 2], "next_token": 3}
        | {"ends": [1, len(text), len(text) + 4], "held_out": False}
        for i, text in enumerate(texts)
    ]
    triggers = [
        {"layer": layer, "memory": i, "rank": r, "coefficient": 30.0 - r, "sentence": r, "position": 1, "next_token": 2}
        for layer, count in enumerate(COUNTS)
        for i in range(count)
        for r in range(1, fired(Memory(layer, i)) + 1)
    ]
    write_table(folder, "sentences", sentences)
    write_table(folder, "triggers", triggers)
    write_table(folder, "memories", [])
    write_table(folder, "documents", [{"document": 0, "title": "t", "topic": None, "held_out": False}])
    write_table(folder, "vocabulary", [{"token": i, "text": text} for i, text in enumerate("ab=c")])
    manifest = {"schema": 1, "model": {"memories": COUNTS}, "corpus": {}, "settings": {"seed": 3}}
    (folder / "study.json").write_text(json.dumps(manifest | {"stages": {"triggers": {"done": True}}}))
    return Study.open(folder)


def write_table(folder, name, rows):
    schema = SCHEMAS[f"{name}.parquet"]
    pq.write_table(pa.Table.from_pylist(rows, schema.remove_metadata()), folder / f"{name}.parquet")


def find_by_machine(study, rows):
    """patterns.parquet, by hand."""
    names = ("annotator", "layer", "memory", "kind", "covers")
    filled = [dict(zip(names, row, strict=True), pattern=i, description="d", support=3) for i, row in enumerate(rows)]
    write_table(study.folder, "patterns", filled)
    study.finish("patterns", {}, seconds=1.0)


# What people wrote


def test_the_newest_counts_and_the_older_stay(study):
    assert (read(study), history(study), annotators(study)) == ([], [], {})
    first = write(study, "Ada", A, [FRUIT, WARS])
    write(study, "Ben", A, [])
    write(study, "Ada", B, [WARS])
    newest = write(study, " Ada ", A, [])  # she looked again, and found none
    assert [(annotation.annotator, annotation.memory, annotation.patterns) for annotation in read(study)] == [
        ("Ada", A, []),
        ("Ben", A, []),
        ("Ada", B, [WARS]),
    ]
    assert history(study)[0] == first
    assert read(study)[0] == newest
    assert annotators(study) == {"Ada": 2, "Ben": 1}
    assert newest.ranks == tuple(range(1, 26))  # of its 27 triggers
    assert newest.places[7] == (7, 1)
    assert newest.time.endswith("+00:00")


def test_nothing_that_was_written_can_be_changed(study):
    write(study, "Ada", A, [FRUIT])
    with sqlite3.connect(study.path(FILE)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
        for table in ("annotation", "shown", "pattern", "covered"):
            for change in (f"DELETE FROM {table}", f"UPDATE {table} SET rowid = 99"):
                with pytest.raises(sqlite3.IntegrityError, match="only ever added"):
                    database.execute(change)
    database.close()


def test_a_study_that_is_made_again_keeps_what_people_wrote(study):
    write(study, "Ada", A, [FRUIT])
    with Study.adding(study.folder) as again:
        again.finish("patterns", {}, seconds=1.0)
        assert len(read(again)) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "name is empty"),
        (" \t ", "name is empty"),
        ("Machine", "'Machine' cannot be a person's name"),
        ("llm:qwen", "cannot be a person's name"),
        ("LLM:qwen", "cannot be a person's name"),
        ("a" * 61, "at most 60 characters; this one has 61"),
        ("a\x1b[31m", "letters and digits of any script"),
        ("a\u202eb", "letters and digits of any script"),
        ("a\nb", "letters and digits of any script"),
        ("\ud800", "letters and digits of any script"),
        (
            "</script><img src=x onerror=alert(1)>",
            "letters and digits of any script, spaces and . _ - @ ' ’; .* contains '<'",
        ),
        ("ada,ben", "contains ','. Remove it"),
        ("a\N{NO-BREAK SPACE}b", "contains '⍽'"),
        ("-_-", "at least one letter or digit; '-_-' has none"),
    ],
)
def test_invalid_names_of_annotators(study, name, message):
    with pytest.raises(InputError, match=message):
        write(study, name, A, [])
    with pytest.raises(InputError, match=message):
        write_sheet(study, name, [A])
    assert not study.path(FILE).exists()


@pytest.mark.parametrize(
    "name", ["Ada Lovelace", "O'Brien", "O’Brien-2", "a.b_c@d.org", "Ñandú", "山田太郎", "मीरा", "عمر ٣"]
)
def test_names_of_annotators_in_any_script(study, name):
    assert write(study, name, A, []).annotator == name


def test_annotations_under_invalid_names_are_read_but_not_extended(study):
    write(study, "ada", A, [FRUIT])
    drafts.save(study, "ada", A, [], none=True)
    sign_otherwise(study.folder, "ada", "<b>ada</b>")
    assert annotators(study) == {"<b>ada</b>": 1}
    assert drafts.checked_reader(study, "<b>ada</b>") == "<b>ada</b>"
    assert len(drafts.steps(study, "<b>ada</b>", A)) == 1
    with pytest.raises(InputError, match="contains '<'"):
        write(study, "<b>ada</b>", A, [FRUIT])
    with pytest.raises(InputError, match="contains '<'"):
        drafts.checked_reader(study, "<b>ben</b>")


def test_names_of_annotators_are_normalised(study):
    write(study, "Zoe\u0308", A, [])
    write(study, "Zo\u00eb", A, [FRUIT])
    assert annotators(study) == {"Zo\u00eb": 1}


@pytest.mark.parametrize(
    ("memory", "patterns", "message"),
    [
        (A, [Pattern("shallow", "two", (1, 2))], "'two' covers 2 of the prefixes; a pattern needs at least 3"),
        (A, [Pattern("shallow", "same", (1, 1, 2))], "'same' covers 2 of the prefixes"),
        (A, [Pattern("shallow", "far", (1, 2, 26))], "'far' covers prefix 26, but the prefixes are 1 to 25"),
        (A, [Pattern("odd", "kind", (1, 2, 3))], "The kind of a pattern is shallow or semantic, not 'odd'"),
        (A, [Pattern("shallow", " \n", (1, 2, 3))], "has no description"),
        (A, [Pattern("shallow", "a" * 501, (1, 2, 3))], "at most 500 characters; 'a+'… has 501"),
        (A, [Pattern("shallow", "a\x00b", (1, 2, 3))], "cannot be stored"),
        (A, [Pattern("shallow", "\ud800", (1, 2, 3))], "cannot be stored"),
        (A, [FRUIT] * 7, "L0.0 has 7 patterns; at most 6 are allowed"),
        (Memory(0, 3), [FRUIT], "covers prefix 3, but the prefixes are 1 to 2"),
        (Memory(0, 4), [], "L0.4 has no triggers, so there is nothing to annotate"),
    ],
)
def test_patterns_that_are_refused(study, memory, patterns, message):
    with pytest.raises(InputError, match=message):
        write(study, "Ada", memory, patterns)
    with pytest.raises(InputError, match=message):
        write_new(study, "Ada", {B: [FRUIT], memory: patterns}, source="sheet")
    assert read(study) == []  # not even B's


def test_an_unknown_memory(study):
    with pytest.raises(MemoryNameError, match="There is no memory L1.4"):
        write(study, "Ada", Memory(1, 4), [])


def test_descriptions_are_one_line_in_any_script():
    pattern = normalised(
        Pattern("semantic", " two\r\n  lines\u200f של <script> ", (3, 1, 2, 2), p_value=0.1), range(1, 4)
    )
    assert pattern == Pattern("semantic", "two lines\u200f של <script>", (1, 2, 3))


def test_files_that_are_not_annotations(study):
    file = study.path(FILE)
    file.write_bytes(b"no database, but long enough to be looked at " * 30)
    for ask in (lambda: read(study), lambda: write(study, "Ada", A, [])):
        with pytest.raises(StudyError, match="cannot be read as annotations: file is not a database. Restore a backup"):
            ask()
    file.unlink()
    write(study, "Ada", A, [FRUIT])
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA user_version = 2")
    database.close()
    for ask in (lambda: read(study), lambda: write(study, "Ada", A, [])):
        with pytest.raises(StudyError, match="has schema 2; this ffscope reads schema 1. Use a newer ffscope"):
            ask()
    file.unlink()
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE mine (a)")
    database.close()
    for ask in (lambda: read(study), lambda: write(study, "Ada", A, [])):
        with pytest.raises(StudyError, match="belongs to another program"):
            ask()
    file.unlink()
    file.mkdir()
    with pytest.raises(StudyError, match="cannot be used: unable to open database file"):
        write(study, "Ada", A, [])


def test_read_only_annotations_are_read_without_leaving_files(study, monkeypatch):
    write(study, "Ada", A, [FRUIT])
    assert len(read(study)) == 1
    assert [file.name for file in study.folder.glob(f"{FILE}*")] == [FILE]
    monkeypatch.setattr("os.access", lambda *_: False)
    assert len(read(study)) == 1


def test_a_truncated_file_gives_a_plain_error(study):
    write(study, "Ada", A, [FRUIT, WARS])
    whole = study.path(FILE).read_bytes()
    for size in (50, 3000, len(whole) // 2):
        study.path(FILE).write_bytes(whole[:size])
        with pytest.raises(StudyError, match="annotations.sqlite"):
            read(study)
    study.path(FILE).write_bytes(b"")  # as left by a process that was killed at once
    assert read(study) == []
    write(study, "Ada", A, [FRUIT])
    assert len(read(study)) == 1


def write_some(folder, annotator, count):
    study = Study.open(folder)
    for i in range(count):
        write(study, annotator, Memory(0, i % 3), [FRUIT] if i % 2 else [FRUIT, WARS])


def test_threads_that_write_at_once_lose_nothing(study):
    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(write_some, study.folder, f"a{i}", 6) for i in range(6)]:
            done.result()
    assert Counter(annotation.annotator for annotation in history(study)) == {f"a{i}": 6 for i in range(6)}
    assert annotators(study) == {f"a{i}": 3 for i in range(6)}


@pytest.mark.ray
def test_processes_that_write_at_once_lose_nothing(study):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write_some, args=(study.folder, f"a{i}", 8)) for i in range(2)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):  # reading meanwhile sees whole annotations
        assert all(len(annotation.places) == 25 and annotation.patterns for annotation in history(study))
        time.sleep(0.02)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert Counter(annotation.annotator for annotation in history(study)) == {f"a{i}": 8 for i in range(2)}


# Sheets


def cells(sheet):
    """A sheet as a spreadsheet has it: its rows."""
    return list(csv.reader(io.StringIO(sheet.csv.read_text(encoding="utf-8-sig"), newline="")))


def fill(rows, memory, filled):
    """Write into cells: {"pattern 1": (mark, text), "prefix 3": mark}."""
    for row in rows:
        if row[0] == str(memory) and row[1] in filled:
            entry = filled[row[1]]
            row[2:4] = entry if isinstance(entry, tuple) else (entry, row[3])
    return rows


def save(rows, file, *, encoding="utf-8-sig", **how):
    with file.open("w", encoding=encoding, errors="replace", newline="") as out:
        csv.writer(out, **how).writerows(rows)
    return file


FILLED = {
    "pattern 1": ("Shallow ", "ends with “fruit”"),
    "pattern 2": ("SEMANTIC", "wars"),
    "prefix 1": "1",
    "prefix 2": "2.0",
    "prefix 3": "1, 2",
    "prefix 4": "'1",
    "prefix 25": "2",
}


def test_the_same_memories_are_drawn_for_everyone(study):
    drawn = draw(study, 2)
    assert drawn == draw(study, 2)
    assert [memory.layer for memory in drawn] == [0, 1, 2, 0, 1, 2]  # half of it is half of every layer
    assert len(set(drawn)) == 6
    assert set(drawn) <= set(draw(study, 3))
    assert sorted(draw(study)) == [Memory(i, j) for i, count in enumerate(COUNTS) for j in range(count - 1)]
    assert draw(study, 2, seed=3) == drawn  # the study's own
    assert any(draw(study, 2, seed=seed) != drawn for seed in range(4, 9))


def test_memories_by_name(study):
    assert parse_memories(study, "L1.1, L0.0,L1.1") == [B, A]
    with pytest.raises(MemoryNameError, match="There is no memory L7.0"):
        parse_memories(study, "L1.1,L7.0")
    with pytest.raises(MemoryNameError, match="is not a memory's name"):
        parse_memories(study, "L1.1,")
    with pytest.raises(InputError, match="L0.4 has no triggers"):
        parse_memories(study, "L0.4")
    with pytest.raises(InputError, match="Give --memories, or --sample and --seed"):
        choose_memories(study, sample=3, names="L1.1", seed=None)


def test_a_sheet_has_the_first_25_prefixes_and_nothing_that_the_machine_found(study):
    find_by_machine(study, [("machine", 0, 0, "shallow", [1, 2, 3])])
    sheet = write_sheet(study, "ada", [B, A, Memory(0, 3)])
    rows = cells(sheet)
    assert sheet.csv.read_bytes().startswith(b"\xef\xbb\xbfmemory,row,mark,text")
    assert {len(row) for row in rows} == {7}
    mine = [row for row in rows if row[0] == "L0.0"]
    assert [row[1] for row in mine] == [f"pattern {i}" for i in range(1, 7)] + [f"prefix {i}" for i in range(1, 26)]
    assert all(not row[2] for row in rows[1:])
    assert mine[6 + 9][3:] == ["w", "ord 10", "'=", "s10p1"]
    assert len([row for row in rows if row[0] == "L0.3"]) == 6 + 2
    form = json.loads(sheet.json.read_text())
    assert [memory["memory"] for memory in form["memories"]] == ["L1.1", "L0.0", "L0.3"]
    assert all(memory["patterns"] == [] and not memory["none"] for memory in form["memories"])
    shown = {"rank": 10, "text": "w", "token": "ord 10", "next": "=", "sentence": 10, "position": 1}
    assert form["memories"][1]["prefixes"][9] == shown
    for file in (sheet.csv, sheet.json):
        assert "machine" not in file.read_text()


def test_no_cell_is_a_formula_or_a_control_sequence(study):
    sheet = write_sheet(study, "@ada", [A])
    text = sheet.csv.read_text(encoding="utf-8-sig")
    for delimiter in ",;\t":
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            assert not any(cell.lstrip(' "').startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row)
    for file in (sheet.csv, sheet.json):
        assert not {"\u202e", "\x1b", "\t"} & set(file.read_text())
    assert "<script>" in text
    for cell, safe in (("=1", "'=1"), ("a-b", "a-b"), ('x;"=1"', 'x;"\'=1"'), ("\t1", "'\t1"), ("\r1", "'\r1")):
        assert csv_sheet.harmless(cell) == safe
    assert read_sheet(study, "@ada", sheet.csv).memories == 0


def test_sheets_of_two_people_are_two_files_and_none_is_overwritten(study):
    names = ["ada", "Ada", "ADA", "a.da", "a da", "..ada", "ada.csv", "陈", "@ada", "a_da"]
    sheets = [write_sheet(study, name, [A]) for name in names]
    assert len({str(sheet.csv).casefold() for sheet in sheets}) == len(names)
    assert {sheet.csv.parent for sheet in sheets} == {study.path("sheets")}
    assert sheets[0].csv.name == "ada.csv"
    before = sheets[0].csv.read_bytes()
    with pytest.raises(
        StudyError, match="ada.csv exists already, and sheets are never overwritten. Fill it in and read it back"
    ):
        write_sheet(study, "ada", [B])
    assert sheets[0].csv.read_bytes() == before
    sheets[1].csv.unlink()
    with pytest.raises(StudyError, match="json exists already"):
        write_sheet(study, "Ada", [B])
    with pytest.raises(InputError, match="no memory with a trigger"):
        write_sheet(study, "eve", [])


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"delimiter": ";"},
        {"delimiter": "\t", "encoding": "utf-16"},
        {"quoting": csv.QUOTE_ALL, "lineterminator": "\n", "encoding": "utf-8"},
    ],
)
def test_a_filled_in_csv_comes_back_whatever_saved_it(study, how, tmp_path):
    sheet = write_sheet(study, "Ada", [A, B, Memory(2, 0)])
    rows = fill(cells(sheet), A, FILLED)
    fill(rows, B, {"pattern 3": ("semantic", "one alone"), "prefix 1": "x", "prefix 2": "X", "prefix 3": "3"})
    rows = [["", *reversed(row), "", ""] for row in rows]  # columns moved, and blank ones
    rows[40:40] = [[], ["", "", ""]]
    read_back = read_sheet(study, "Ada", save(rows, tmp_path / "my sheet.csv", **how))
    assert asdict(read_back) == {"memories": 2, "patterns": 3, "new": 2}
    patterns = {annotation.memory: annotation.patterns for annotation in read(study)}
    assert patterns == {A: [FRUIT, WARS], B: [Pattern("semantic", "one alone", (1, 2, 3))]}
    again = read_sheet(study, "Ada", tmp_path / "my sheet.csv")
    assert asdict(again) == {"memories": 2, "patterns": 3, "new": 0}
    assert len(history(study)) == 2


def test_a_filled_in_json_comes_back(study):
    sheet = write_sheet(study, "Ada", [A, B, Memory(2, 0)])
    form = json.loads(sheet.json.read_text())
    form["memories"][0]["patterns"] = [asdict(FRUIT) | {"kind": "Shallow"}, asdict(WARS)]
    form["memories"][2] = {"memory": "L2.0", "none": True}  # a person may leave the prefixes out
    sheet.json.write_text(json.dumps(form), encoding="utf-8-sig")
    assert asdict(read_sheet(study, "Ada", sheet.json)) == {"memories": 2, "patterns": 2, "new": 2}
    assert {annotation.memory: annotation.patterns for annotation in read(study)} == {
        A: [FRUIT, WARS],
        Memory(2, 0): [],
    }
    assert read_sheet(study, "Ada", sheet.json).new == 0


def test_a_sheet_can_be_continued_and_corrected_but_does_not_undo_other_annotations(study):
    sheet = write_sheet(study, "Ada", [A, B])
    rows = fill(cells(sheet), A, FILLED)
    save(rows, sheet.csv)
    assert read_sheet(study, "Ada", sheet.csv).new == 1
    fill(rows, B, {"pattern 1": ("", "None")})
    save(rows, sheet.csv)
    assert read_sheet(study, "Ada", sheet.csv).new == 1
    write(study, "Ada", A, [WARS])  # on the page
    assert read_sheet(study, "Ada", sheet.csv).new == 0
    assert {annotation.memory: annotation.patterns for annotation in read(study)} == {A: [WARS], B: []}
    fill(rows, A, {"pattern 2": ("shallow", "wars")})
    save(rows, sheet.csv)
    assert read_sheet(study, "Ada", sheet.csv).new == 1
    assert read(study)[0].patterns[1].kind == "shallow"
    assert len(history(study)) == 4


@pytest.mark.parametrize(
    ("filled", "message"),
    [
        ({"pattern 1": ("shallow", "")}, "L0.0, row 12: A pattern has no description"),
        ({"pattern 2": ("", "wars")}, "L0.0, row 13: The kind of a pattern is shallow or semantic, not ''"),
        ({"pattern 2": ("shalow", "wars")}, "L0.0, row 13: The kind of a pattern is shallow or semantic, not 'shalow'"),
        ({"pattern 1": ("shallow", "few"), "prefix 1": "1", "prefix 2": "x"}, "row 12: 'few' covers 2 of the prefixes"),
        ({"prefix 1": "1"}, "L0.0, row 18: it is marked '1', but pattern 1 is not described. Describe it, or remove"),
        ({"prefix 1": "13"}, "row 18: it is marked '13', but pattern 13 is not described"),
        ({"prefix 2": "Jan 3"}, "L0.0, row 19: 'Jan 3' is not a valid mark. Write the numbers"),
        ({"prefix 2": "²"}, "row 19: '²' is not a valid mark"),
        ({"prefix 2": "-1"}, "row 19: '-1' is not a valid mark"),
        (FILLED | {"prefix 5": "x"}, "L0.0, row 22: 'x' is ambiguous unless there is exactly one pattern"),
        (FILLED | {"pattern 3": ("", "none")}, "it is marked 'none' but also has a pattern"),
        ({"pattern 1": ("none", ""), "prefix 5": "1"}, "row 22: it is marked '1', but the memory is marked 'none'"),
    ],
)
def test_errors_in_a_csv_name_the_row(study, filled, message):
    sheet = write_sheet(study, "Ada", [A, B])
    rows = fill(cells(sheet), A, filled)
    fill(rows, B, {"pattern 1": ("", "none")})
    assert rows[11][:2] == ["L0.0", "pattern 1"]  # row 12 in a spreadsheet
    save(rows, sheet.csv)
    with pytest.raises(InputError, match="was not read, and nothing was written. Fix these problems") as caught:
        read_sheet(study, "Ada", sheet.csv)
    assert message in str(caught.value)
    assert read(study) == []


def spoil(rows, change):
    """Damage a sheet in one way."""
    at = {(row[0], row[1]): i for i, row in enumerate(rows)}
    if change == "a prefix gone":
        del rows[at["L0.0", "prefix 7"]]
    elif change == "a prefix more":
        rows.append(["L0.0", "prefix 26", "", "", "", "", ""])
    elif change == "another place":
        rows[at["L0.0", "prefix 7"]][6] = "s99p1"
    elif change == "a place mangled":
        rows[at["L0.0", "prefix 7"]][6] = "99"
    elif change == "a block twice":
        rows.append(rows[at["L0.0", "pattern 1"]])
    elif change == "the same memory by another name":
        rows.append(["L00.0", "pattern 1", "", "none"])
    elif change == "a memory that is not there":
        rows.append(["L9.0", "pattern 1", "shallow", "a"])
    elif change == "no memory":
        rows.append(["17", "pattern 1", "shallow", "a"])
    elif change == "a remark":
        rows.append(["", "", "", "a remark of mine"])
    elif change == "a dead memory":
        rows.append(["L0.4", "pattern 1", "", "none"])
    return rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("a prefix gone", "L0.0, row 12: prefix 7 is missing. Restore the rows"),
        ("a prefix more", "L0.0, row 12: prefix 26 is not in the study"),
        ("another place", "prefix 7 differs from the one that the study has now. Write a new sheet"),
        ("a place mangled", "prefix 7 differs from the one that the study has now"),
        ("a block twice", "row 75: L0.0 has pattern 1 already, in row 12. Remove one of them"),
        ("the same memory by another name", "L0.0, row 75: it is filled in twice"),
        ("a memory that is not there", "row 75: There is no memory L9.0"),
        ("no memory", "row 75: '17' is not a memory's name"),
        ("a remark", "row 75: it belongs to no memory. Expected a name such as L3.17 in the column memory"),
        ("a dead memory", "L0.4, row 75: the memory has no triggers"),
    ],
)
def test_a_damaged_sheet_is_refused_whole(study, change, message):
    sheet = write_sheet(study, "Ada", [A, B])
    rows = spoil(fill(cells(sheet), A, FILLED), change)
    with pytest.raises(InputError) as caught:
        read_sheet(study, "Ada", save(rows, sheet.csv))
    assert message in str(caught.value)
    assert str(caught.value).count("•") == 1
    assert read(study) == []


def test_places_may_be_emptied_and_hostile_prefixes_changed(study):
    sheet = write_sheet(study, "Ada", [A])
    rows = fill(cells(sheet), A, FILLED)
    for row in rows:
        if row[1].startswith("prefix"):
            row[3:] = ["#NAME?", "", "", ""]
    assert read_sheet(study, "Ada", save(rows, sheet.csv)).patterns == 2


def test_all_problems_are_counted_and_ten_listed(study):
    sheet = write_sheet(study, "Ada", [A, B])
    rows = fill(cells(sheet), A, {f"prefix {i}": "maybe" for i in range(1, 15)})
    with pytest.raises(InputError) as caught:
        read_sheet(study, "Ada", save(rows, sheet.csv))
    assert str(caught.value).count("•") == 10
    assert str(caught.value).endswith("… and 4 more")


def test_letters_that_a_spreadsheet_lost_matter_only_where_a_person_wrote_them(study):
    sheet = write_sheet(study, "Ada", [A])
    rows = fill(cells(sheet), A, FILLED | {"pattern 1": ("shallow", "fruit"), "prefix 9": ""})
    assert read_sheet(study, "Ada", save(rows, sheet.csv, encoding="cp1252")).patterns == 2
    fill(rows, A, {"pattern 1": ("shallow", "caf\u00e9")})
    with pytest.raises(InputError, match="contains a damaged letter. Write it again, and save as CSV UTF-8"):
        read_sheet(study, "Ada", save(rows, sheet.csv, encoding="cp1252"))


def test_sheets_that_cannot_be_read_at_all(study, tmp_path):
    sheet = write_sheet(study, "Ada", [A])
    with pytest.raises(InputError, match="was written for 'Ada', not for 'Ben', and was not read"):
        read_sheet(study, "Ben", sheet.csv)
    with pytest.raises(InputError, match="was written for 'Ada', not for 'Ben'"):
        read_sheet(study, "Ben", sheet.json)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_sheet(study, "Ada", tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_sheet(study, "Ada", tmp_path)
    for content in (b"", b"a,b\n1,2\n", b"\x00\x01PK"):
        (tmp_path / "odd.csv").write_bytes(content)
        with pytest.raises(InputError, match="The sheet has no header. Expected a row with the columns memory, row"):
            read_sheet(study, "Ada", tmp_path / "odd.csv")
    (tmp_path / "odd.csv").write_text(f"memory,row,mark,text\n{'a' * 140_000}")
    with pytest.raises(InputError, match="cannot be read as CSV: field larger than field limit"):
        read_sheet(study, "Ada", tmp_path / "odd.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as JSON: Expecting"),
        ("[" * 100_000, "cannot be read as JSON"),
        ("[]", 'has no list of "memories"'),
        ('{"memories": 3}', 'has no list of "memories"'),
        ('{"memories": [3]}', 'memory 1 of the list: expected "memory" with a name such as L3.17'),
        ('{"memories": [{"memory": "L0.0", "patterns": {}}]}', 'L0.0: expected a list of "patterns"'),
        ('{"memories": [{"memory": "L0.0", "none": "no"}]}', '"none" as true or false'),
        ('{"memories": [{"memory": "L0.0", "patterns": ["a"]}]}', "L0.0, pattern 1: expected an object such as {"),
        (
            '{"memories": [{"memory": "L0.0", "patterns": [{"kind": "shallow"}]}]}',
            "pattern 1: expected an object such as",
        ),
        (
            '{"memories": [{"memory": "L0.0", "patterns": [{"kind": "shallow", "description": "a", "covers": [true, 2, 3]}]}]}',
            "pattern 1: expected an object such as",
        ),
        (
            '{"memories": [{"memory": "L0.0", "patterns": [{"kind": "shallow", "description": "a", "covers": [1, 2, 30]}]}]}',
            "L0.0, pattern 1: 'a' covers prefix 30, but the prefixes are 1 to 25",
        ),
        (
            '{"memories": [{"memory": "L0.0", "none": true}, {"memory": "L0.0", "none": true}]}',
            "L0.0, memory 2: it is filled in twice",
        ),
        ('{"memories": [{"memory": "L9.0", "none": true}]}', "memory 1: There is no memory L9.0"),
        (
            json.dumps({"memories": [{"memory": "L0.0", "patterns": [asdict(FRUIT)] * 7}]}),
            "L0.0, memory 1: it has 7 patterns; at most 6 are allowed",
        ),
        (
            json.dumps({"memories": [{"memory": "L0.0", "patterns": [asdict(FRUIT)], "none": True}]}),
            "it is marked 'none' but also has a pattern",
        ),
    ],
)
def test_errors_in_a_json_are_explained(study, content, message, tmp_path):
    (tmp_path / "sheet.json").write_text(content)
    with pytest.raises(InputError) as caught:
        read_sheet(study, "Ada", tmp_path / "sheet.json")
    assert message in str(caught.value)
    assert read(study) == []


# Agreement


def test_alpha_is_krippendorffs():
    """The example of "Computing Krippendorff's Alpha-Reliability" (2011), C: four observers, twelve units, nominal."""
    answers = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ]
    assert alpha(answers) == pytest.approx(0.743, abs=5e-4)
    assert alpha(answers[:1]) is None
    assert alpha([]) is None
    assert alpha([[1, None], [None, 1]]) is None
    assert alpha([["a", "a"], ["a", "a"]]) is None
    assert alpha([["a", "b"], ["a", "b"]]) == 1


def test_kappa_is_cohens():
    """The well-known example of 50 grant proposals: 20 yes by both, 15 no by both, 5 and 10 apart; kappa is 0.4."""
    first = ["yes"] * 25 + ["no"] * 25
    second = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    assert kappa(first, second) == pytest.approx(0.4)
    assert kappa([], []) is None
    assert kappa("aa", "aa") is None
    assert kappa("aa", "ab") == 0
    assert kappa("ab", "ba") == -1


def plain_alpha(answers):
    """Disagreement within units over disagreement between all answers that can be paired."""
    units = [[answer for answer in unit if answer is not None] for unit in zip(*answers, strict=True)]
    units = [unit for unit in units if len(unit) > 1]
    every = [answer for unit in units for answer in unit]
    within = sum(sum(a != b for a, b in itertools.permutations(unit, 2)) / (len(unit) - 1) for unit in units)
    between = sum(a != b for a, b in itertools.permutations(every, 2)) / (len(every) - 1)
    return 1 - (within / len(every)) / (between / len(every))


def test_alpha_and_kappa_are_what_plain_code_gives():
    generator = np.random.default_rng(2)
    for _ in range(20):
        answers = generator.choice(["a", "b", "c", None], (3, 17), p=[0.4, 0.3, 0.1, 0.2]).tolist()
        assert alpha(answers) == pytest.approx(plain_alpha(answers))
        first, second = generator.choice(list("abc"), (2, 23)).tolist()
        observed = sum(a == b for a, b in zip(first, second, strict=True)) / 23
        expected = sum(first.count(answer) * second.count(answer) for answer in "abc") / 23**2
        assert kappa(first, second) == pytest.approx((observed - expected) / (1 - expected))


def test_labels_are_those_of_figure_2():
    by_rank = labels([FRUIT, WARS, Pattern("shallow", "again", (1, 4, 5))], range(1, 7))
    assert by_rank == {1: "shallow", 2: "semantic", 3: "both", 4: "shallow", 5: "shallow", 6: "not covered"}
    assert labels([], [1, 2]) == {1: "not covered", 2: "not covered"}


def test_people_are_compared_with_each_other(study):
    write(study, "Ada", A, [FRUIT, WARS])  # 1 shallow, 2 semantic, 3 both, 4 shallow, 25 semantic
    write(study, "Ben", A, [Pattern("shallow", "mine", (1, 2, 3, 4, 5))])
    write(study, "Ada", B, [FRUIT])  # which Ben did not do
    agreement = measure_agreement(study)
    assert agreement.people == {"Ada": 2, "Ben": 1}
    coverage, kind = agreement.pairs
    assert (coverage.question, coverage.first, coverage.second) == ("coverage", "Ada", "Ben")
    assert (coverage.prefixes, coverage.memories) == (25, 1)
    assert coverage.agreement == 23 / 25
    assert coverage.kappa == pytest.approx((23 / 25 - 0.68) / (1 - 0.68))  # both cover 5 of 25
    assert (kind.prefixes, kind.agreement, kind.kappa) == (4, 0.5, 0.0)
    assert [alpha.question for alpha in agreement.alphas] == ["coverage", "kind"]
    assert agreement.alphas[0].alpha == pytest.approx(
        plain_alpha([[1] * 4 + [1, 0] + [0] * 19, [1] * 4 + [0, 1] + [0] * 19])
    )
    assert (agreement.alphas[0].prefixes, agreement.alphas[1].prefixes) == (25, 4)


def test_people_are_compared_with_programs(study):
    write(study, "Ada", A, [FRUIT])
    write(study, "Ada", B, [FRUIT])
    assert measure_agreement(study).pairs == []
    rows = [
        ("machine", 0, 0, "shallow", [1, 3, 4]),
        ("machine", 2, 0, "shallow", [1, 2, 3]),
        ("llm:small", 1, 1, "semantic", [1, 3, 4]),
    ]
    find_by_machine(study, rows)
    pairs = {(pair.question, pair.second): pair for pair in measure_agreement(study).pairs}
    assert set(pairs) == set(itertools.product(("coverage", "kind"), ("machine", "llm:small")))
    machine = pairs["coverage", "machine"]
    assert (machine.memories, machine.prefixes, machine.agreement) == (2, 50, 47 / 50)  # of B it says: not covered
    assert pairs["coverage", "llm:small"].kappa == 1
    assert pairs["coverage", "llm:small"].memories == 1
    assert (pairs["kind", "llm:small"].agreement, pairs["kind", "llm:small"].kappa) == (0, 0)
    assert measure_agreement(study).alphas == []
    study.finish("labels", {}, seconds=1.0, annotator="llm:small", without_pattern=["L0.0", "L2.0"])
    assert {pair.second: pair.memories for pair in measure_agreement(study).pairs[:2]} == {"machine": 2, "llm:small": 2}
    study.path("patterns.parquet").unlink()
    assert measure_agreement(study).pairs == []


def test_prefixes_are_compared_by_place_and_not_by_rank(study):
    write(study, "Ada", A, [FRUIT])
    table = pq.read_table(study.path("triggers.parquet")).to_pylist()
    for row in table:  # another search, in which ranks 1 and 2 changed places
        row["sentence"] = {1: 2, 2: 1}.get(row["sentence"], row["sentence"])
    write_table(study.folder, "triggers", table)
    find_by_machine(study, [("machine", 0, 0, "shallow", [2, 3, 4])])
    assert measure_agreement(study).pairs[0].kappa == 1


# The command


def run(study, *args):
    return CliRunner().invoke(app, ["annotate", str(study.folder), *map(str, args)])


def test_the_command_writes_reads_and_compares(study):
    assert "No annotations yet" in run(study).stdout
    for name in ("Ada @b", "Ben"):
        wrote = run(study, "--annotator", name, "--memories", "L0.0,L1.1")
        assert wrote.exit_code == 0, wrote.output
        assert "2 memories to annotate" in wrote.stdout
        assert "--read" in wrote.stdout
    sheets = {name: next(study.path("sheets").glob(f"{name}*.csv")) for name in ("ada", "ben")}
    for name, sheet in (("Ada @b", sheets["ada"]), ("Ben", sheets["ben"])):
        rows = list(csv.reader(io.StringIO(sheet.read_text(encoding="utf-8-sig"), newline="")))
        save(fill(rows, A, FILLED), sheet)
        result = run(study, "--annotator", name, "--read", sheet)
        assert result.exit_code == 0, result.output
        assert "1 memories read, with 2 patterns; 1 memories are new or changed." in result.stdout
    assert "Ada @b annotated 1 memories" in result.stdout
    shown = run(study).stdout
    assert "coverage" in shown
    assert "100%" in shown
    assert "Krippendorff's alpha 1.00 over 25 prefixes of 1 memories" in shown
    summary = json.loads(run(study, "--json").stdout)
    assert summary == json.loads(json.dumps(asdict(annotate(study.folder))))
    assert summary["concord"]["pairs"][0]["kappa"] == 1


def test_json_says_where_the_sheet_is_and_what_was_read(study):
    wrote = json.loads(run(study, "--annotator", "ada", "--sample", 1, "--seed", 5, "--json").stdout)
    assert wrote["sheet"]["csv"] == str(study.path("sheets/ada.csv"))
    assert wrote["sheet"]["memories"] == 3
    back = json.loads(run(study, "--annotator", "ada", "--read", wrote["sheet"]["json"], "--json").stdout)
    assert back["read"] == {"memories": 0, "patterns": 0, "new": 0}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--sample", "3"], "A sheet needs an annotator. Name the person with --annotator."),
        (["--read", "a.csv"], "A sheet needs an annotator"),
        (["--annotator", "ada", "--read", "a.csv", "--sample", "3"], "already names its memories"),
        (["--annotator", "machine"], "cannot be a person's name"),
        (["--annotator", "ada", "--memories", "L0"], "names a whole layer"),
    ],
)
def test_the_command_explains_errors(study, args, message):
    result = run(study, *args)
    assert result.exit_code != 0
    assert message in str(result.exception)
    assert not study.path("sheets").exists()


def test_the_command_needs_neither_torch_nor_triggers_that_are_not_there(study, tmp_path):
    code = f"""
import sys
for name in ("torch", "transformers", "triton"): sys.modules[name] = None
sys.argv = ["ffscope", "annotate", {str(study.folder)!r}, "--annotator", "ada"]
from ffscope.cli import main
main()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    copy = tmp_path / "copy"
    shutil.copytree(study.folder, copy)
    (copy / "study.json").write_text(json.dumps({**study.manifest, "stages": {}}))
    with pytest.raises(StudyError, match="has no triggers yet"):
        annotate(copy)
