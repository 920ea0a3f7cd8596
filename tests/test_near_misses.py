"""The share of prefixes with a form on which a memory fires, compared with a count over known coefficients."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ffscope.memory_name import Memory
from ffscope.patterns.conditional_background import ConditionalBackground
from ffscope.patterns.forms import SHALLOW, form_code
from ffscope.patterns.near_misses import NearMisses
from ffscope.patterns.shallow import Shared
from ffscope.study.schemas import SCHEMAS
from word_prefixes import prefixes_from

EDGES = [2.0**power for power in range(-8, 13)]
FORM = SHALLOW[0]


def histogram(coefficients):
    """The 45 counts, as docs/contract.md defines them."""
    counts = [0] * 45
    for coefficient in coefficients:
        size, number = abs(coefficient), 0
        if size > 0:
            number = 1 + sum(size >= edge for edge in EDGES)
        counts[22 + number if coefficient >= 0 else 22 - number] += 1
    return counts


def shared(bits, rate, code=0, form=FORM):
    return Shared(form, code, bits, 1e-9, rate, 0, (form, code), bits)


def make(folder, coefficients, listed, *, sentences=1000, edges=EDGES, seen=None, conditional=None):
    """Near misses of memories with these coefficients on the sampled prefixes and on their triggers."""
    rows = [
        dict.fromkeys(SCHEMAS["memories.parquet"].names, 0)
        | {"memory": memory, "seen": len(own) if seen is None else seen, "histogram": histogram(own)}
        | {"sample_coefficients": [], "sample_sentences": [], "sample_positions": []}
        for memory, own in enumerate(coefficients)
    ]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMAS["memories.parquet"]), folder / "memories.parquet")
    triggers = [
        {"layer": 0, "memory": memory, "rank": rank, "coefficient": float(value)}
        for memory, own in enumerate(listed)
        for rank, value in enumerate(own, 1)
    ]
    study = SimpleNamespace(
        path=lambda name: folder / name,
        settings={"histogram_edges": edges} if edges else {},
        manifest={"stages": {"triggers": {"sentences": sentences}}},
    )
    conditional = conditional or SimpleNamespace(sentences=sentences)
    return NearMisses(study, pa.Table.from_pylist(triggers), conditional, complete=True)


def test_a_memory_with_many_triggers_is_counted_in_its_histogram(tmp_path):
    """Exactly if half the weakest trigger's coefficient is an edge; otherwise the whole bin counts."""
    generator = np.random.default_rng(0)
    coefficients = [generator.exponential(1.0, 5000) * (generator.random(5000) < 0.5) for _ in range(4)]
    coefficients[3] *= -1
    weakest = [4.0, 2.0, 2.9, 1.0]
    misses = make(tmp_path, coefficients, [[9.0, 5.0, least] for least in weakest])
    for memory, (own, least) in enumerate(zip(coefficients, weakest, strict=True)):
        below = max(edge for edge in EDGES if edge <= least / 2)
        plain = (np.sum(own >= below) + 1) / 5000 / 0.4
        assert misses.firing_share(Memory(0, memory), shared(7, 0.4)) == pytest.approx(plain)
        assert plain >= np.mean(own >= least / 2) / 0.4
    assert misses.firing_share(Memory(0, 0), shared(7, 1e-6)) == 1.0  # rarer than what the memory fires on


def test_coefficients_beyond_the_edges(tmp_path):
    generator = np.random.default_rng(1)
    large, small = 5000 + generator.random(100), generator.random(100) / 1000
    misses = make(tmp_path, [large, small], [[20000.0] * 3, [0.001] * 3])
    assert misses.firing_share(Memory(0, 0), shared(7, 1.0)) == pytest.approx(1.0)
    assert misses.firing_share(Memory(0, 1), shared(7, 1.0)) == 1.0


def test_a_memory_with_few_triggers_fires_in_no_other_sentence(tmp_path):
    """Its triggers with the form are compared with the sentences of the corpus that have it."""
    texts = [["a", "castle"]] * 30 + [["a", "river"]] * 60 + [["a", "castle"]] * 10
    prefixes = prefixes_from(texts)
    conditional = ConditionalBackground(prefixes, np.zeros((100, 1), np.float32), 0)
    owner, codes = FORM.codes(prefixes)
    code = int(form_code(FORM, codes)[owner.tolist().index(0)])
    misses = make(tmp_path, [[1.0] * 50] * 2, [[9.0] * 4, [9.0] * 25], sentences=400, conditional=conditional)
    assert conditional.sentences_with(FORM, code) == 40
    assert misses.firing_share(Memory(0, 0), shared(0b111, 0.4, code)) == pytest.approx(3 / (4 * 40))
    assert misses.firing_share(Memory(0, 0), shared(0b111, 0.4, 1)) == 1.0  # no sentence of the sample has it
    within = next(form for form in SHALLOW if form.words)
    assert misses.firing_share(Memory(0, 0), shared(0b111, 0.4, code, within)) is None
    assert misses.firing_share(Memory(0, 1), shared(0b111, 0.4, code)) == pytest.approx(
        1 / 50 / 0.4
    )  # by its histogram


def test_nothing_is_estimated_without_counts(tmp_path):
    zero, full = np.zeros(0), np.ones(10)
    listed = [[2.0, 1.0, 1.0]]
    assert make(tmp_path, [zero], listed, seen=1).firing_share(Memory(0, 0), shared(7, 0.1)) is None
    assert make(tmp_path, [zero], listed, seen=0).firing_share(Memory(0, 0), shared(7, 0.1)) is None
    assert make(tmp_path, [full], listed, edges=None).firing_share(Memory(0, 0), shared(7, 0.1)) is None
    assert make(tmp_path, [full], [[2.0, 1.0, 0.0]]).firing_share(Memory(0, 0), shared(7, 0.1)) is None
    assert make(tmp_path, [full], listed).firing_share(Memory(0, 0), shared(7, 0.1)) == 1.0
