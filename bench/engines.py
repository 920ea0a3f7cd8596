"""The same search by the local engine and by the engine ray, from the command to the written tables, in turns.

python bench/engines.py --shape wiki16 --sentences 20000 --rounds 3 -- --workers 2
python bench/engines.py --corpus wiki.jsonl.xz --shape paper --dtype bfloat16 --bytecode

Options after -- go to the commands with --engine ray. The tables of both must be the same to the byte.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from end_to_end import SHAPES, SHARED, articles, environment, first_articles, prepare, print_machine

TABLES = ("sentences.parquet", "triggers.parquet", "memories.parquet")


def timed(words: list[str], study: Path, env: dict[str, str]) -> dict[str, float]:
    """Run a command; the seconds of the whole, until the search begins, and of the search."""
    begin = time.time()
    subprocess.run(
        [sys.executable, "-m", "ffscope", *words, "--out", str(study)], check=True, env=env, capture_output=True
    )
    whole = time.time() - begin
    entry = json.loads((study / "study.json").read_text())["stages"]["triggers"]
    start = (study / ".lock").stat().st_mtime - begin
    return {"whole": whole, "start": start, "search": entry["seconds"], "prefixes": entry["prefixes"]}


def sentence(way: str, parts: dict[str, float]) -> str:
    """The times of a command."""
    whole, search = (
        f"{parts[name]:.1f} s ({parts['prefixes'] / parts[name]:,.0f} prefixes/s)" for name in ("whole", "search")
    )
    return f"{way:6} whole {whole}; start {parts['start']:.1f} s; search {search}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=SHARED / "corpora" / "wiki-train.jsonl.xz")
    parser.add_argument("--articles", type=int, help="use only the first ones")
    parser.add_argument("--shape", choices=SHAPES, default="wiki16")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--sentences", type=int)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--bytecode", action="store_true", help="compile all imports first")
    parser.add_argument("ray", nargs="*", help="options of the commands with --engine ray, after --")
    options = parser.parse_args()
    print_machine(options.shape, options.dtype)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder / "model", options.shape, options.dtype, None, articles(options.corpus))
        text = first_articles(options.corpus, options.articles, folder) if options.articles else options.corpus
        words = ["triggers", str(folder / "model"), "--corpus", str(text), "--dtype", options.dtype]
        words += ["--sentences", str(options.sentences)] if options.sentences else []
        env = environment(folder / "bytecode" if options.bytecode else None, folder / "model")
        ways = {"local": [], "ray": ["--engine", "ray", *options.ray]}
        if options.bytecode:  # Ray's own, too
            timed([*words, "--sentences", "100", *ways["ray"]], folder / "first", env)
        ratios = []
        for number in range(options.rounds):
            times = {}
            for way, more in ways.items():
                times[way] = timed([*words, *more], folder / f"{way}{number}", env)
                print(sentence(way, times[way]), flush=True)
            ratios.append(times["local"]["whole"] / times["ray"]["whole"])
            for table in TABLES:
                local, ray = ((folder / f"{way}{number}" / table).read_bytes() for way in ways)
                assert local == ray, f"{table} differs"
        print(f"rate of ray over local, whole command: {', '.join(f'{ratio:.3f}' for ratio in ratios)}")
        print(f"median {statistics.median(ratios):.3f}; all tables are the same to the byte")


if __name__ == "__main__":
    main()
