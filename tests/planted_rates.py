"""How many planted patterns were found, by kind."""

import re

import numpy as np

from planted_text import stem

SURFACE = "piece", "skip-gram", "form", "last word", "two words", "word before"
_MOST = 0.6  # of the planted ranks, what the row of a surface form must cover
_SOME = 0.3  # the same of a topic


def rates(planted, rows):
    """By kind: the share of memories for which each wanted thing is true, and `n`, how many there are.

    `surface` is about all memories with a surface form: the share with a row about a subject.
    """
    outcomes = {}
    for entry, reported in with_rows(planted, rows):
        outcomes.setdefault(entry.kind, []).append(outcome(entry, reported))
        if entry.kind in SURFACE:
            outcomes.setdefault("surface", []).append({"given a subject": any(_is_subject(row) for row in reported)})
    return {kind: _shares(results) for kind, results in outcomes.items()}


def with_rows(planted, rows):
    """Each planted memory with its rows."""
    by_memory = {}
    for row in rows:
        by_memory.setdefault(row["memory"], []).append(row)
    return [(entry, by_memory.get(entry.memory, [])) for entry in planted]


def outcome(entry, rows):
    """What is true of the rows of one planted memory; the first entry is what is wanted. None: the question does not arise."""
    return _OUTCOMES.get(entry.kind, _named)(entry, rows)


def _shares(results):
    names = dict.fromkeys(name for result in results for name in result)
    answers = {name: [result[name] for result in results if result.get(name) is not None] for name in names}
    return {name: float(np.mean(values)) if values else None for name, values in answers.items()} | {"n": len(results)}


def _covered(entry, row):
    return len(set(row["covers"]) & set(entry.ranks)) / max(len(entry.ranks), 1)


def _names(row, word):
    """How often a description has a word."""
    return len(re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", row["description"], re.IGNORECASE))


def _says(row, pattern):
    return bool(re.search(pattern, row["description"], re.IGNORECASE))


def _is_subject(row):
    return bool(re.match(r"about|from documents", row["description"]))


def _named(entry, rows):
    """One row names every word, or says what the pattern is, and covers most planted ranks."""
    fitting = [row for row in rows if row["kind"] == "shallow" and _covered(entry, row) >= _MOST]
    if entry.pattern:
        return {"found": any(_says(row, entry.pattern) for row in fitting)}
    needed = {word: entry.words.count(word) for word in entry.words}
    return {"found": any(all(_names(row, word) >= times for word, times in needed.items()) for row in fitting)}


def _set(entry, rows):
    """One row names two members, or the set, and covers most; else a row covers less, or names one member, or is a subject."""
    members = [(sum(_names(row, word) > 0 for word in entry.words), row) for row in rows]
    several = [row for count, row in members if count >= 2 or _says(row, rf"\b(?:{entry.pattern})s?\b")]
    forms = [row for row in several if not _is_subject(row)]
    named = any(_covered(entry, row) >= _MOST for row in forms)
    single = any(count == 1 and not _is_subject(row) for count, row in members)
    subject = any(_is_subject(row) and _covered(entry, row) >= _MOST for row in several)
    return {
        "found": named,
        "a smaller set": bool(forms) and not named,
        "in pieces": single and not forms,
        "as a subject": subject and not named,
    }


def _finer(entry, rows):
    broad = any(_covered(entry, row) >= _MOST and _says(row, entry.pattern) for row in rows)
    word = any(_names(row, entry.words[0]) for row in rows)
    return {"found": broad and word, "class": broad, "word": word}


def _topic(entry, rows):
    fitting = [row for row in rows if row["kind"] == "semantic" and _covered(entry, row) >= _SOME]
    first = [_first_word(row) in entry.naming for row in fitting]
    return {"found": bool(fitting), "first word names it": first[0] if first else None}


def _first_word(row):
    """The first word listed, without what introduces it."""
    listed = re.sub(r"^(?:from documents )?about[:\s]*", "", row["description"])
    match = re.search(r"\w+(?:['’]\w+)*", listed)
    return stem(match.group().lower()) if match else ""


def _both(entry, rows):
    """The rows of a near miss name all of it, together."""
    fitting = [row for row in rows if _covered(entry, row) >= _SOME]
    words = all(any(_names(row, word) for row in fitting) for word in entry.words)
    pattern = not entry.pattern or any(_says(row, entry.pattern) for row in fitting)
    topic = not entry.naming or any(row["kind"] == "semantic" for row in fitting)
    return {
        "found": words and pattern and topic,
        "in part": any(_names(row, word) for row in fitting for word in entry.words),
    }


def _nothing(entry, rows):
    return {"has a row": bool(rows)}


_OUTCOMES = {
    "set": _set,
    "finer in a class": _finer,
    "topic": _topic,
    "subject": _topic,
    "near miss": _both,
    "nothing": _nothing,
}
