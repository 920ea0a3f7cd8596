"""Searching memories: every answer compared with a plain loop over the tables."""

import json
import shutil
from functools import cache

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import ffscope
from ffscope.cli import app
from ffscope.errors import InputError, MemoryNameError, StudyError
from ffscope.queries.memory import memory_page
from ffscope.queries.search import SearchQuery, ranges, search, sorts
from ffscope.queries.tables import Tables, reading
from ffscope.stages.registry import measures
from ffscope.tokens import visible
from studies import copy_of


@pytest.fixture(scope="module")
def study(explored, tmp_path_factory):
    return copy_of(explored, tmp_path_factory.mktemp("search"))


@pytest.fixture(scope="module", params=["where they lie", "in memory"])
def tables(request, study):
    opened = Tables(study)
    if request.param == "in memory":
        opened.load_into_memory()
    yield opened
    opened.close()


def find(tables, **query):
    return search(tables, SearchQuery.parse(query, limit=1000))


@cache
def _plain(folder):
    """Every memory by name: its triggers' prefixes, promoted tokens, patterns, measures."""
    results = ffscope.open(folder)
    memories = {}
    agreement = {(row["layer"], row["memory"]): row for row in results.agreement().to_pylist()}
    values = {(row["layer"], row["memory"]): row for row in results.values().to_pylist()}
    for row in results.table("memories").to_pylist():
        key = row["layer"], row["memory"]
        known = agreement.get(key, {})
        memories[key] = {
            "prefixes": [],
            "patterns": [],
            "promotes": values[key]["top_text"],
            "top_probs": values[key]["top_probs"],
            "fires": row["fired"] / row["seen"],
            "mean": row["mean"],
            "maximum": row["maximum"],
            "max_prob": values[key]["max_prob"],
            "norm": values[key]["norm"],
            **{name: known.get(name) for name in ("agrees", "next_rank", "precision")},
        }
    others = {
        "effects": ("effect", "effect_size", "direct"),
        "types": ("mutual_information", "kurtosis", "skew", "frequency_correlation"),
    }
    for name, columns in others.items():
        for row in results.table(name).to_pylist():
            memories[row["layer"], row["memory"]] |= {measure: row[measure] for measure in columns}
    for row in results.triggers().to_pylist():
        memories[row["layer"], row["memory"]]["prefixes"].append(row["prefix"])
    for row in results.patterns().to_pylist():
        memories[row["layer"], row["memory"]]["patterns"].append(row)
    return {f"L{layer}.{memory}": facts for (layer, memory), facts in memories.items()}


def plain(study):
    return _plain(study.folder)


@pytest.mark.parametrize(
    "text",
    ["cat", "CAT", " on a", "<script>", "the", "t", "\u202e", "Hi <script>alert(1)</script> ", "nowhere to be found"],
)
def test_by_the_text_of_triggers(study, tables, text):
    expected = {
        name: sum(text.lower() in prefix.lower() for prefix in memory["prefixes"])
        for name, memory in plain(study).items()
    }
    expected = {name: hits for name, hits in expected.items() if hits}
    results = find(tables, trigger=text)
    assert {row.memory: row.hits for row in results.rows} == expected
    assert results.count == len(expected)
    for row in results.rows:
        prefix = "".join(row.trigger.tokens[: row.trigger.position + 1])
        assert text.lower() in prefix.lower()
        assert prefix == next(
            candidate for candidate in plain(study)[row.memory]["prefixes"] if text.lower() in candidate.lower()
        )


def test_a_text_behind_the_trigger_token_does_not_count(study, tables):
    """The memory has not seen it yet."""
    text = "song"
    behind = [
        row.memory
        for row in find(tables, trigger="a").rows
        if text in "".join(row.trigger.tokens) and text not in "".join(row.trigger.tokens[: row.trigger.position + 1])
    ]
    assert behind  # there are such
    expected = {
        name for name, memory in plain(study).items() if any(text in prefix.lower() for prefix in memory["prefixes"])
    }
    assert {row.memory for row in find(tables, trigger=text).rows} == expected


def by_token(study, matches):
    """The first promoted token that matches, of every memory that has one: its rank, spelling and probability."""
    first_matches = {}
    for name, memory in plain(study).items():
        ranked = enumerate(zip(memory["promotes"], memory["top_probs"], strict=True), 1)
        match = next(((rank, *promoted) for rank, promoted in ranked if matches(promoted[0])), None)
        if match:
            first_matches[name] = match
    return first_matches


@pytest.mark.parametrize("token", ["a", "E", "␣", " ", "t ", "␣t", ".", "zz"])
def test_by_a_promoted_token_as_it_is_typed(study, tables, token):
    expected = by_token(study, lambda spelt: spelt == visible(token))
    results = find(tables, promotes=token)
    assert {
        row.memory: (row.promoted.rank, row.promoted.token, row.promoted.probability) for row in results.rows
    } == expected
    places = [(row.promoted.rank, -row.promoted.probability) for row in results.rows]
    assert places == sorted(places)  # by default the best rank comes first, then the highest probability
    assert find(tables, trigger="a").rows[0].promoted is None


@pytest.mark.parametrize("token", ["a", "E", " T ", "␣t", ".", "zz"])
def test_by_a_promoted_token_whatever_its_case_and_spaces(study, tables, token):
    wanted = token.strip(" ␣").lower()
    expected = by_token(study, lambda spelt: spelt.strip("␣").lower() == wanted)
    results = find(tables, promotes=token, loose="yes")
    assert {
        row.memory: (row.promoted.rank, row.promoted.token, row.promoted.probability) for row in results.rows
    } == expected


def test_case_matters_unless_the_search_is_loose(study, tables):
    letters = {token for memory in plain(study).values() for token in memory["promotes"] if token.isalpha()}
    letter = next(token for token in sorted(letters) if token.swapcase() in letters)
    strict = {row.promoted.token for row in find(tables, promotes=letter).rows}
    loose = {row.promoted.token for row in find(tables, promotes=letter, loose="yes").rows}
    assert strict == {letter}
    assert loose >= {letter, letter.swapcase()}


def test_the_command_shows_rank_and_probability_of_the_token(study, tables):
    row = find(tables, promotes="a").rows[0]
    shown = CliRunner().invoke(app, ["search", str(study.folder), "--promotes", "a", "--count", "1"]).stdout
    assert shown.splitlines()[1].split()[:4] == ["memory", "token", "rank", "probability"]
    assert shown.splitlines()[2].split()[:4] == [
        row.memory,
        "a",
        str(row.promoted.rank),
        f"{row.promoted.probability:.2g}",
    ]
    count = find(tables, promotes="A", loose="yes").count
    loose = CliRunner().invoke(app, ["search", str(study.folder), "--promotes", "A", "--loose"]).stdout
    assert loose.startswith(f"{count} memories match")
    text = " ".join(CliRunner().invoke(app, ["search", "--help"], env={"COLUMNS": "300"}).stdout.split())
    assert "Only the 20 top tokens of every value are searched" in text


@pytest.mark.parametrize("width", [80, 200])
def test_the_command_shows_the_measures_that_are_queried(study, tables, width):
    arguments = [
        "search",
        str(study.folder),
        "--sort",
        "effect_size",
        "--where",
        "promoter=no",
        "--where",
        "fires=0.1..",
    ]
    shown = CliRunner().invoke(app, [*arguments, "--count", "2"], env={"COLUMNS": str(width)}).stdout.splitlines()
    assert shown[1].split()[:4] == ["memory", "effect_size", "fires", "promoter"]
    rows = find(tables, sort="effect_size", promoter="no", fires="0.1..").rows[:2]
    expected = [
        [row.memory, f"{row.measures['effect_size']:.2g}", f"{row.measures['fires']:.1%}", "no"] for row in rows
    ]
    assert [line.split()[:4] for line in shown[2:]] == expected  # a narrow terminal cuts no name and no number


def test_by_pattern_and_kind(study, tables):
    memories = plain(study)
    word = next(memory["patterns"][0]["description"] for memory in memories.values() if memory["patterns"])[:6].upper()
    expected = {
        name
        for name, memory in memories.items()
        if any(word.lower() in pattern["description"].lower() for pattern in memory["patterns"])
    }
    assert {row.memory for row in find(tables, pattern=word).rows} == expected
    kinds = {name: {pattern["kind"] for pattern in memory["patterns"]} for name, memory in memories.items()}
    for kind in ("shallow", "semantic", "both", "none"):
        meant = {"both": {"shallow", "semantic"}, "none": set()}.get(kind, {kind})
        assert {row.memory for row in find(tables, kind=kind).rows} == {
            n for n, memory_kinds in kinds.items() if memory_kinds == meant
        }


def of_every_study(names):
    """Those that are not measures of an optional stage, whose own tests have them."""
    return [name for name in names if name not in measures() or not measures()[name][0].optional]


@pytest.mark.parametrize("measure", of_every_study(ranges()))
def test_by_the_range_of_any_measure(study, tables, measure):
    numbers = {
        name: len(memory["patterns"]) if measure == "patterns" else memory[measure]
        for name, memory in plain(study).items()
    }
    some = sorted(number for number in numbers.values() if number is not None)
    low, high = (some[len(some) // 4], some[3 * len(some) // 4]) if some else (0.0, 1.0)
    for bounds, holds in {
        f"{low!r}..": lambda number: number >= low,
        f"..{high!r}": lambda number: number <= high,
        f"{low!r}..{high!r}": lambda number: low <= number <= high,
    }.items():
        expected = {name for name, number in numbers.items() if number is not None and holds(number)}
        assert {row.memory for row in find(tables, **{measure: bounds}).rows} == expected


def test_several_conditions_at_once(study, tables):
    memories = plain(study)
    for agrees in ("yes", "no"):
        expected = {
            name
            for name, memory in memories.items()
            if name.startswith(("L0.", "L2.")) and memory["agrees"] is (agrees == "yes") and memory["maximum"] > 0
        }
        assert {row.memory for row in find(tables, agrees=agrees, layers="0,2", dead="no").rows} == expected


@pytest.mark.parametrize("sort", of_every_study(sorts()))
def test_sorted_both_ways_with_unknown_last(tables, sort):
    for order in (sort, f"-{sort}"):
        results = find(tables, sort=order, trigger="a", promotes="a")

        def number(row):
            if sort == "memory":
                return tuple(map(int, row.memory[1:].split(".")))
            if sort in ("rank", "probability"):
                return getattr(row.promoted, sort)
            return row.hits if sort == "hits" else row.measures[sort]

        numbers = [number(row) for row in results.rows]
        known = [value for value in numbers if value is not None]
        assert numbers[: len(known)] == known
        up = (sort in ("rank", "memory", "next_rank")) != order.startswith("-")
        assert known == sorted(known, reverse=not up)


def test_pages_of_an_answer_are_parts_of_it(tables):
    whole = [row.memory for row in find(tables, trigger="a").rows]
    parts = [search(tables, SearchQuery.parse({"trigger": "a"}, limit=7, offset=at)) for at in range(0, len(whole), 7)]
    assert [row.memory for part in parts for row in part.rows] == whole
    assert {part.count for part in parts} == {len(whole)}


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"precision": "0.2"}, "precision must be a range such as"),
        ({"precision": ".."}, "precision must be a range such as"),
        ({"precision": "nan.."}, "precision must be a range such as"),
        ({"precision": "1e999.."}, "precision must be a range such as"),
        ({"agrees": "maybe"}, "agrees must be yes or no"),
        ({"loose": "maybe"}, "loose must be yes or no"),
        ({"kind": "deep"}, "There is no kind 'deep'"),
        ({"sort": "colour"}, "Results cannot be sorted by 'colour'"),
        ({"trigger": "x" * 1001}, "at most 1,000"),
    ],
)
def test_invalid_queries_are_refused(query, error):
    with pytest.raises(InputError, match=error):
        SearchQuery.parse(query)


def test_unknown_layers_and_stages_not_done(study, tables, tmp_path, tokenizer):
    with pytest.raises(MemoryNameError, match="layers 7"):
        find(tables, layers="7")
    bare = ffscope.open(study.folder).study
    without = type(bare)(bare.folder, {**bare.manifest, "stages": {"triggers": bare.manifest["stages"]["triggers"]}})
    opened = Tables(without)
    assert find(opened, trigger="cat").rows[0].measures.keys() == {"fires", "mean", "maximum", "dead"}
    with pytest.raises(StudyError, match="ffscope values"):
        find(opened, promotes="a")


def test_the_command_gives_the_same_rows(study, tables):
    options = ["--trigger", "cat", "--where", "fires=0.01..", "--where", "dead=no", "--sort", "-hits", "--count", "5"]
    result = CliRunner().invoke(app, ["search", str(study.folder), *options, "--json"])
    assert result.exit_code == 0, result.output
    rows = search(
        tables, SearchQuery.parse({"trigger": "cat", "fires": "0.01..", "dead": "no", "sort": "-hits"}, limit=5)
    ).rows
    assert [row["memory"] for row in json.loads(result.stdout)["rows"]] == [row.memory for row in rows]
    shown = CliRunner().invoke(app, ["search", str(study.folder), "--trigger", "script"])
    assert shown.exit_code == 0, shown.output
    assert "memories match" in shown.stdout
    assert "\x1b[31m" not in shown.stdout
    assert "\u202e" not in shown.stdout
    refused = CliRunner().invoke(app, ["search", str(study.folder), "--where", "colour=3"])
    assert "--where expects a measure" in str(refused.exception)


def test_show_says_the_rank_of_the_next_token_beside_agreement(study):
    page = memory_page(study, "L1.4")
    shown = CliRunner().invoke(app, ["show", str(study.folder), "L1.4"]).stdout
    vocab = study.manifest["model"]["vocab"]
    assert f"the next token of its top trigger has rank {page.value.next_rank} of {vocab} in the value" in shown
    answer = "yes" if page.value.agrees else "no"
    assert f"agreement (top token of the value = next token of the top trigger): {answer}" in shown


def test_letters_that_lower_to_more_than_one_and_tokens_as_pages_spell_them(study, tmp_path):
    copy = tmp_path / "study"
    shutil.copytree(study.folder, copy)
    table = pq.read_table(copy / "sentences.parquet")
    texts = [f"İstanbul ΟΔΟΣ {text}"[: len(text)] for text in table["text"].to_pylist()]
    pq.write_table(table.set_column(table.schema.get_field_index("text"), "text", [texts]), copy / "sentences.parquet")
    with reading(copy) as tables:
        for text in ("İ", "İstanbul", "ΟΔΟΣ", "istanbul"):
            assert find(tables, trigger=text).count, text
        spelt = next(row.measures["top"] for row in find(tables, sort="memory").rows if row.measures["top"].strip("␣"))
        with_space = {row.memory for row in find(tables, promotes=f"␣{spelt.strip('␣')}", loose="yes").rows}
        assert with_space == {row.memory for row in find(tables, promotes=spelt.strip("␣"), loose="yes").rows} != set()


def test_past_the_end_there_is_still_a_count(tables):
    query = {"trigger": "a"}
    past = search(tables, SearchQuery.parse(query, offset=10_000))
    assert past.rows == []
    assert past.count == search(tables, SearchQuery.parse(query)).count > 0
