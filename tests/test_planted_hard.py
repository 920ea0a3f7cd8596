"""The generator of planted memories: its tables agree with its coefficients."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from planted_hard import EDGES, TRIGGERS, Memories, plant, planted_before
from planted_rates import rates
from planted_text import Text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted") / "study"
    plant(folder, seed=2, sentences=4000, each=4, nothing=5)
    return folder


@pytest.mark.slow
def test_the_share_of_the_first_triggers_is_the_purity(folder):
    _, planted = planted_before(folder)
    assert len({entry.kind for entry in planted}) == 12
    for entry in planted:
        assert len(entry.ranks) == round(TRIGGERS * entry.purity), entry


@pytest.mark.slow
def test_the_tables_are_true_of_the_coefficients(folder):
    text, generator = Text(planted_before(folder)[0]), np.random.default_rng(0)
    memories = Memories(text, generator)
    mask = text.ending_with("the")
    coefficients = memories.coefficients(mask, 0.6)
    best = memories.add_coefficients(coefficients)
    (row,), seen = memories.memories, coefficients[memories.sampled]
    assert 0.85 < (coefficients[mask] >= 1).mean() < 0.95
    assert (row["seen"], row["fired"], sum(row["histogram"])) == (len(seen), (seen > 0).sum(), len(seen))
    assert (row["mean"], row["maximum"]) == (pytest.approx(seen.mean()), coefficients[best[0]])
    for number, low, high in zip(range(23, 45), [0, *EDGES], [*EDGES, np.inf], strict=True):
        assert row["histogram"][number] == ((seen >= low) & (seen < high) & (seen > 0)).sum()
    assert len(row["sample_coefficients"]) == 10
    assert row["sample_coefficients"] == sorted(row["sample_coefficients"], reverse=True)
    assert len(set(text.of[best])) == len(best) == 50
    rest = np.delete(np.maximum.reduceat(coefficients, text.start), text.of[best])
    assert coefficients[best].min() >= rest.max()


@pytest.mark.slow
def test_what_is_named_counts_as_found(folder):
    study, planted = planted_before(folder)
    assert set(pq.read_table(study.path("documents.parquet"))["topic"].to_pylist()) == {None}
    named = [
        {
            "memory": entry.memory,
            "kind": "shallow",
            "covers": entry.ranks,
            "description": f"“{'”, “'.join(entry.words)}”",
        }
        for entry in planted
        if entry.words
    ]
    measured = rates(planted, named)
    for kind in ("set", "skip-gram", "last word", "two words", "word before"):
        assert measured[kind]["found"] == 1, kind
    assert measured["surface"] == {"given a subject": 0.0, "n": 24}
    none = rates(planted, [])
    assert all(shares.get("found", 0) == 0 for shares in none.values())
    assert none["nothing"] == {"has a row": 0.0, "n": 5}
