"""How long each stage after the search takes on a device, and whether it finds what another device found.

`python bench/stages.py STUDY MODEL --device cuda`: STUDY holds all stages, made elsewhere. Its search is taken over, the
rest is done again on the device and held against it.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import ffscope
from ffscope.stages.registry import stages_in_run
from ffscope.study.folder import Study

SEARCH = ("study.json", "documents", "sentences", "vocabulary", "triggers", "memories")
STATED = ("layer", "memory", "rank", "removed", "removed_index", "example", "sentence", "position", "target", "text")


def searched(study: Study, folder: Path) -> None:
    """A copy of a study as its search left it."""
    for name in SEARCH:
        file = name if "." in name else f"{name}.parquet"
        shutil.copy(study.path(file), folder / file)
    with Study.adding(folder) as copy:
        for stage in (*(stage.name for stage in stages_in_run()), "examples", "report"):
            copy.manifest["stages"].pop(stage, None)
        copy.skip("report", "not wanted")


def compare(name: str, one: Study, other: Study) -> None:
    """Print how far two tables lie apart: numbers by their largest difference, tokens and counts by how many differ."""
    tables = [pq.read_table(study.path(f"{name}.parquet")) for study in (one, other)]
    for column in tables[0].column_names:
        first, second = (table[column].to_pylist() for table in tables)
        if column in STATED:
            assert first == second, f"{name}.{column} differs"
        elif isinstance(first[0], float):
            apart = np.abs(np.array(first) - np.array(second))
            print(f"  {name}.{column}: largest difference {apart.max():.1e}, largest value {np.abs(first).max():.3g}")
        elif not isinstance(first[0], list):
            differ = sum(a != b for a, b in zip(first, second, strict=True))
            print(f"  {name}.{column}: {differ:,} of {len(first):,} differ")
        else:
            differ = sum(a[:1] != b[:1] for a, b in zip(first, second, strict=True))
            print(f"  {name}.{column}: the first of the list differs in {differ:,} of {len(first):,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("model")
    parser.add_argument("--device", default="cuda")
    chosen = parser.parse_args()
    made = Study.open(chosen.study)
    model = ffscope.load(chosen.model, chosen.device, made.manifest["model"]["dtype"])
    asked = {name: made.settings[name] for name in ("examples", "mutation_memories", "mutation_triggers", "lens")}
    with tempfile.TemporaryDirectory() as folder:
        searched(made, Path(folder))
        for stage in (row.name for row in stages_in_run()):
            again = ffscope.analyse(stage, model, folder, **asked)
            seconds, before = (study.manifest["stages"][stage]["seconds"] for study in (again, made))
            print(f"{stage}: {seconds:.1f} s on {chosen.device}, {before:.1f} s there")
            compare(stage, again, made)


if __name__ == "__main__":
    main()
