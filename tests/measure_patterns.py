"""Measures how many planted patterns `ffscope patterns` finds, by kind and purity."""

import argparse
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from ffscope.analysis.patterns import find_patterns
from ffscope.engines.local import LocalEngine
from ffscope.study.folder import Study
from planted_hard import PURITIES, plant, planted_before
from planted_kinds import KINDS
from planted_rates import outcome, rates, with_rows


def main():
    options = _options()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (
            Path(options.keep or temporary)
            / f"planted-{options.seed}-{options.sentences}-{options.each}-{options.nothing}"
        )
        folder.parent.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        _, planted = planted_before(folder) or plant(
            folder, seed=options.seed, sentences=options.sentences, each=options.each, nothing=options.nothing
        )
        print(f"{len(planted)} memories planted in {time.perf_counter() - start:.0f} s")
        start = time.perf_counter()
        with Study.adding(folder) as study:
            study.path("patterns.parquet").unlink(missing_ok=True)  # of an earlier run
            find_patterns(study, LocalEngine())
            rows = pq.read_table(study.path("patterns.parquet")).to_pylist()
        print(f"{len(rows)} patterns found in {time.perf_counter() - start:.0f} s")
    planted = [entry for entry in planted if options.kinds is None or entry.kind in options.kinds]
    print_table(planted, rows)
    if options.missed:
        _print_missed(planted, rows)


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sentences", type=int, default=8000)
    parser.add_argument("--each", type=int, default=12, help="memories of each kind")
    parser.add_argument("--nothing", type=int, default=100, help="memories that fire at random")
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS, "nothing"], help="show only these")
    parser.add_argument("--missed", action="store_true", help="show what was missed, with the rows instead")
    parser.add_argument("--keep", help="folder where the planted study is kept and used again")
    return parser.parse_args()


def print_table(planted, rows):
    """Print the rates of every kind, over all purities and for each."""
    by_purity = {
        purity: rates([entry for entry in planted if entry.purity == purity], rows) for purity in (*PURITIES, 0.0)
    }
    print(f"{'kind':18}{'rate':22}{'n':>5}{'all':>7}" + "".join(f"{purity:>7}" for purity in PURITIES))
    for kind, shares in rates(planted, rows).items():
        for name, share in shares.items():
            if name != "n":
                cells = [by_purity[purity].get(kind, {}).get(name) for purity in PURITIES]
                shown = "".join(f"{'' if cell is None else format(cell, '.2f'):>7}" for cell in [share, *cells])
                print(f"{kind:18}{name:22}{shares['n']:>5}{shown}")


def _print_missed(planted, rows):
    for entry, reported in with_rows(planted, rows):
        wanted = next(iter(outcome(entry, reported).values()))
        if wanted == (entry.kind == "nothing"):
            print(f"\n{entry.kind}: {entry.name} (memory {entry.memory}, purity {entry.purity}, ranks {entry.ranks})")
            for row in reported:
                covers = len(set(row["covers"]) & set(entry.ranks))
                print(f"    {row['description']} | {row['support']} triggers, {covers} of {len(entry.ranks)} planted")


if __name__ == "__main__":
    main()
