"""How long each stage after the search takes on a device, and whether its results match those of another device.

`python bench/stages.py STUDY MODEL --device cuda`: STUDY is a finished study from another device. Its search is copied; the other
stages are run again on the device and compared.
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


def copy_search(study: Study, folder: Path) -> None:
    """Copy a study as it was after the search."""
    for name in SEARCH:
        file = name if "." in name else f"{name}.parquet"
        shutil.copy(study.path(file), folder / file)
    with Study.adding(folder) as copy:
        for stage in (*(stage.name for stage in stages_in_run()), "examples", "report"):
            copy.manifest["stages"].pop(stage, None)
        copy.skip("report", "not wanted")


def compare(name: str, first: Study, second: Study) -> None:
    """Print how much two tables differ: the largest difference of numbers, and how many tokens and counts differ."""
    tables = [pq.read_table(study.path(f"{name}.parquet")) for study in (first, second)]
    for column in tables[0].column_names:
        left, right = (table[column].to_pylist() for table in tables)
        if column in STATED:
            assert left == right, f"{name}.{column} differs"
        elif isinstance(left[0], float):
            difference = np.abs(np.array(left) - np.array(right))
            print(
                f"  {name}.{column}: largest difference {difference.max():.1e}, largest value {np.abs(left).max():.3g}"
            )
        elif not isinstance(left[0], list):
            differ = sum(a != b for a, b in zip(left, right, strict=True))
            print(f"  {name}.{column}: {differ:,} of {len(first):,} differ")
        else:
            differ = sum(a[:1] != b[:1] for a, b in zip(left, right, strict=True))
            print(f"  {name}.{column}: the first of the list differs in {differ:,} of {len(first):,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("model")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    original = Study.open(options.study)
    model = ffscope.load(options.model, options.device, original.manifest["model"]["dtype"])
    settings = {
        name: original.settings[name] for name in ("examples", "mutation_memories", "mutation_triggers", "lens")
    }
    with tempfile.TemporaryDirectory() as folder:
        copy_search(original, Path(folder))
        for stage in (row.name for row in stages_in_run()):
            again = ffscope.analyse(stage, model, folder, **settings)
            seconds, before = (study.manifest["stages"][stage]["seconds"] for study in (again, original))
            print(f"{stage}: {seconds:.1f} s on {options.device}, {before:.1f} s originally")
            compare(stage, again, original)


if __name__ == "__main__":
    main()
