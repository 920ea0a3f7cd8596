"""Every question asked of a finished study, answered from its files alone: no model, no torch."""

import glob
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from ffscope.errors import MemoryNameError, StudyError
from ffscope.memory import Memory
from ffscope.study import Study

Place = tuple[int, int]  # of a prefix: sentence, position


@dataclass(frozen=True)
class Trigger:
    """One trigger of a memory: its coefficient, where it is, and its text, cut before and after the trigger token."""

    rank: int
    coefficient: float
    sentence: int
    position: int
    before: str
    token: str
    next_token: str
    title: str | None


@dataclass(frozen=True)
class Value:
    """What a value promotes, with probabilities, and suppresses; and whether that is what follows its key's triggers."""

    norm: float
    promotes: list[tuple[str, float]]
    suppresses: list[str]
    agrees: bool | None  # None where the memory has no trigger, or agreement has not been looked at
    next_rank: int | None
    precision: float | None


@dataclass(frozen=True)
class Found:
    """A pattern of a memory, and who says so: the machine, a language model ("llm:…") or a person."""

    annotator: str
    kind: str
    description: str
    covers: list[int]
    p_value: float | None
    detection: float | None


@dataclass(frozen=True)
class PatternExample:
    """A memory with its patterns, and three of the prefixes that the first of them covers."""

    memory: str
    patterns: list[Found]
    triggers: list[Trigger]


@dataclass(frozen=True)
class MemoryPage:
    """What a study knows of one memory. `fired` of `seen` prefixes had a coefficient above 0."""

    memory: str
    model: str
    dtype: str
    seen: int
    fired: int
    mean: float
    maximum: float
    histogram: list[int]
    value: Value | None  # None where the values have not been read
    patterns: list[Found] | None  # None where nobody has looked for them
    triggers: list[Trigger]
    sample: list[Trigger]
    negative: list[Trigger]


@dataclass(frozen=True)
class PredictiveValue:
    """A value that is sure of its first token, held against its key's triggers: the first that agrees, or else the first."""

    memory: str
    max_prob: float
    prediction: str
    triggers: int
    precision: float | None  # None where the memory is dead
    trigger: Trigger | None


def predictive_values(folder: Path | str, count: int = 100) -> list[PredictiveValue]:
    """The searched values with the highest maximum probability."""
    study = Study.open(folder)
    study.need("agreement")
    with duckdb.connect() as connection:
        database: Any = connection
        open_tables(database, study)
        rows = database.execute(
            """
            SELECT v.layer, v.memory, v.max_prob, v.top_tokens[1], coalesce(a.triggers, 0), a.precision
            FROM values v SEMI JOIN memories m USING (layer, memory) LEFT JOIN agreement a USING (layer, memory)
            ORDER BY v.max_prob DESC, v.layer, v.memory LIMIT ?
            """,
            [count],
        ).fetchall()
        spelt = spellings(database, [row[3] for row in rows])
        telling = _telling(database, [(layer, memory, token) for layer, memory, _, token, _, _ in rows])
    return [
        PredictiveValue(
            memory=str(Memory(layer, memory)),
            max_prob=max_prob,
            prediction=spelt.get(token, f"#{token}"),
            triggers=triggers,
            precision=precision,
            trigger=telling.get(Memory(layer, memory)),
        )
        for layer, memory, max_prob, token, triggers, precision in rows
    ]


def _telling(database: Any, wanted: list[tuple[int, int, int]]) -> dict[Memory, Trigger]:
    """Of each memory with its value's token, the first trigger that this token follows, or else its first."""
    rows = database.execute(
        """
        SELECT layer, memory, rank, coefficient, sentence, position
        FROM triggers JOIN (SELECT unnest(?) AS layer, unnest(?) AS memory, unnest(?) AS token) USING (layer, memory)
        QUALIFY row_number() OVER (PARTITION BY layer, memory ORDER BY next_token != token, rank) = 1
        """,
        [[one[part] for one in wanted] for part in range(3)],
    ).fetchall()
    return dict(zip((Memory(*row[:2]) for row in rows), _told(database, [row[2:] for row in rows]), strict=True))


def pattern_examples(folder: Path | str, count: int = 1) -> list[PatternExample]:
    """So many memories of every layer, by lot, with the machine's patterns, each with three prefixes (the paper's table 1)."""
    study = Study.open(folder)
    study.need("patterns")
    with duckdb.connect() as connection:
        database: Any = connection
        open_tables(database, study)
        drawn = database.execute(
            """
            SELECT layer, memory FROM (SELECT DISTINCT layer, memory FROM patterns WHERE annotator = 'machine')
            QUALIFY row_number() OVER (PARTITION BY layer ORDER BY md5(concat_ws(' ', ?, layer, memory))) <= ? ORDER BY ALL
            """,
            [study.settings["seed"], count],
        ).fetchall()
        made = []
        for memory in (Memory(*row) for row in drawn):
            found = _by_programs(database, memory, "machine")
            places = [row for row in _listed(database, "triggers", memory) if row[0] in found[0].covers[:3]]
            made.append(PatternExample(str(memory), found, _told(database, places)))
    return made


def _patterns(study: Study, database: Any, memory: Memory) -> list[Found] | None:
    """What anyone says that a memory's triggers share."""
    from ffscope.annotating.records import read  # which asks here where triggers are

    people = [one for one in read(study) if one.memory == memory]
    if not people and not study.has("patterns"):
        return None
    programs = _by_programs(database, memory) if study.has("patterns") else []
    return programs + [
        Found(one.annotator, said.kind, said.description, list(said.covers), None, None)
        for one in people
        for said in one.patterns
    ]


def _by_programs(database: Any, memory: Memory, annotator: str | None = None) -> list[Found]:
    rows = database.execute(
        """
        SELECT annotator, kind, description, covers, p_value, detection FROM patterns
        WHERE layer = ? AND memory = ? AND annotator = coalesce(?, annotator)
        ORDER BY annotator != 'machine', annotator, pattern
        """,
        [*memory, annotator],
    ).fetchall()
    return [Found(*row) for row in rows]


def memory_page(folder: Path | str, name: str) -> MemoryPage:
    """One memory's triggers, a sample of the prefixes on which it fires, and counts."""
    study = Study.open(folder)
    memory = checked(study, Memory.parse(name))
    with duckdb.connect() as database:
        open_tables(database, study)
        row = database.execute("SELECT * FROM memories WHERE layer = ? AND memory = ?", memory).fetchone()
        if row is None:
            raise MemoryNameError(
                f"{memory} was not searched in {folder}: the search was restricted to other memories."
            )
        columns = [column[0] for column in database.description or []]
        counted = dict(zip(columns, row, strict=True))
        sampled = [
            (rank + 1, *place)
            for rank, place in enumerate(
                zip(*(counted[f"sample_{what}"] for what in ("coefficients", "sentences", "positions")), strict=True)
            )
        ]
        negative = (
            _listed(database, "negative_triggers", memory) if study.path("negative_triggers.parquet").is_file() else []
        )
        return MemoryPage(
            memory=str(memory),
            model=study.manifest["model"]["source"] or study.manifest["model"]["family"],
            dtype=study.manifest["model"]["dtype"],
            **{name: counted[name] for name in ("seen", "fired", "mean", "maximum", "histogram")},
            value=_value(database, memory) if study.has("values") else None,
            patterns=_patterns(study, database, memory),
            triggers=_told(database, _listed(database, "triggers", memory)),
            sample=_told(database, sampled),
            negative=_told(database, negative),
        )


def first_triggers(study: Study, memories: list[Memory], *, count: int) -> dict[Memory, list[Trigger]]:
    """The first so many triggers of memories, with their text."""
    with duckdb.connect() as database:
        open_tables(database, study)
        rows = _first(database, memories, count)
        told = _told(database, [row[2:] for row in rows])
    found: dict[Memory, list[Trigger]] = {memory: [] for memory in memories}
    for row, trigger in zip(rows, told, strict=True):
        found[Memory(*row[:2])].append(trigger)
    return found


def trigger_places(study: Study, memories: list[Memory], *, count: int) -> dict[Memory, dict[int, Place]]:
    """Where the first so many triggers of memories are, by rank."""
    with duckdb.connect() as database:
        open_tables(database, study)
        rows = _first(database, memories, count)
    places: dict[Memory, dict[int, Place]] = {memory: {} for memory in memories}
    for layer, memory, rank, _, sentence, position in rows:
        places[Memory(layer, memory)][rank] = (sentence, position)
    return places


def prefixes_at(study: Study, places: list[Place]) -> list[Trigger]:
    """Any prefixes of the corpus, numbered from 1 and without a coefficient, with their text."""
    with duckdb.connect() as database:
        open_tables(database, study)
        return _told(database, [(number + 1, 0.0, *place) for number, place in enumerate(places)])


def _first(database: Any, memories: list[Memory], count: int) -> list[tuple[Any, ...]]:
    return database.execute(
        """
        SELECT layer, memory, rank, coefficient, sentence, position
        FROM triggers SEMI JOIN (SELECT unnest(?) AS layer, unnest(?) AS memory) USING (layer, memory)
        WHERE rank <= ? ORDER BY layer, memory, rank
        """,
        [[memory.layer for memory in memories], [memory.memory for memory in memories], count],
    ).fetchall()


def checked(study: Study, memory: Memory) -> Memory:
    """A memory that the study's model has."""
    study.need("triggers")
    counts = study.manifest["model"]["memories"]
    if memory.layer >= len(counts):
        raise MemoryNameError(f"There is no memory {memory}. The study's model has layers 0 to {len(counts) - 1}.")
    if memory.memory >= counts[memory.layer]:
        last = counts[memory.layer] - 1
        raise MemoryNameError(f"There is no memory {memory}. Layer {memory.layer} has memories 0 to {last}.")
    return memory


def _value(database: Any, memory: Memory) -> Value:
    query = "SELECT norm, top_tokens, top_probs, bottom_tokens FROM values WHERE layer = ? AND memory = ?"
    norm, top, probabilities, bottom = database.execute(query, memory).fetchone()
    top, probabilities, bottom = top or [], probabilities or [], bottom or []  # a model may have no unembedding
    spelt = spellings(database, [*top, *bottom])
    said = [spelt.get(token, f"#{token}") for token in (*top, *bottom)]
    return Value(
        norm=norm,
        promotes=list(zip(said[: len(top)], probabilities, strict=True)),
        suppresses=said[len(top) :],
        **_agreement(database, memory),
    )


def _agreement(database: Any, memory: Memory) -> dict[str, Any]:
    names = ("agrees", "next_rank", "precision")
    if not database.execute("SELECT 1 FROM duckdb_views() WHERE view_name = 'agreement'").fetchone():
        return dict.fromkeys(names)
    query = f"SELECT {', '.join(names)} FROM agreement WHERE layer = ? AND memory = ?"
    found = database.execute(query, memory).fetchone()
    return dict.fromkeys(names) if found is None else dict(zip(names, found, strict=True))


def open_tables(database: Any, study: Study) -> None:
    """Every table of a study as a view of its name."""
    for file in study.folder.glob("*.parquet"):
        try:
            # Escaped: a folder's own name may hold what duckdb would take for a pattern, and read other studies by it.
            database.read_parquet(glob.escape(str(file))).create_view(file.stem)
        except duckdb.Error as error:
            raise StudyError(
                f"{file} cannot be read as a table: {str(error).splitlines()[0]}. Make that stage again."
            ) from error


def _listed(database: Any, table: str, memory: Memory) -> list[tuple[Any, ...]]:
    """Rank, coefficient, sentence and position of a memory's triggers."""
    query = f"SELECT rank, coefficient, sentence, position FROM {table} WHERE layer = ? AND memory = ? ORDER BY rank"
    return database.execute(query, memory).fetchall()


def _told(database: Any, places: list[tuple[Any, ...]]) -> list[Trigger]:
    """Places with their text."""
    if not places:
        return []
    rows = database.execute(
        """
        SELECT s.sentence, s.text, s.tokens, s.ends, s.next_token, d.title
        FROM sentences s LEFT JOIN documents d USING (document) WHERE s.sentence IN (SELECT unnest(?))
        """,
        [sorted({place[2] for place in places})],
    ).fetchall()
    sentences = {row[0]: row[1:] for row in rows}
    spelt = spellings(database, (token for row in sentences.values() for token in (*row[1], row[3])))
    return [_trigger(place, sentences[place[2]], spelt) for place in places]


def spellings(database: Any, tokens: Iterable[int]) -> dict[int, str]:
    """Tokens as they are shown."""
    query = "SELECT token, text FROM vocabulary WHERE token IN (SELECT unnest(?))"
    return dict(database.execute(query, [sorted(set(tokens))]).fetchall())


def _trigger(place: tuple[Any, ...], sentence: tuple[Any, ...], spelt: dict[int, str]) -> Trigger:
    rank, coefficient, number, position = place
    text, tokens, ends, after, title = sentence
    following = tokens[position + 1] if position + 1 < len(tokens) else after
    if ends:
        start, end = ends[position - 1] if position else 0, ends[position]
        before, token = text[:start], text[start:end]
    else:  # the tokenizer does not say where its tokens are
        before = "".join(spelt.get(token, f"#{token}") for token in tokens[:position])
        token = spelt.get(tokens[position], f"#{tokens[position]}")
    # Half a character has no text of its own.
    token = token if token.strip() else spelt.get(tokens[position], token)
    next_token = spelt.get(following, "") if following >= 0 else ""
    return Trigger(rank, coefficient, number, position, before, token, next_token, title)
