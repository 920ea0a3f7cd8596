"""How long a search takes on a cluster, from measured rates: a simulation of slow workers, failures, storage and the reading.

python bench/simulate_cluster.py                          the table of docs/scaling.md
python bench/simulate_cluster.py --model 8b --gpus 64 --prefixes 1e9 --slow 0.05 --hours-between-failures 1000

Every worker takes one shard after the other, with a second one waiting, as engines/ray/pool.py hands them out; what a failed worker
had runs again. Rates and the costs of states are those in h200.json; the rest are assumptions, named in `Cluster` below.
"""

import argparse
import heapq
import json
import math
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

MEASURED = Path(__file__).with_name("h200.json")
BATCHES = 32  # of a shard: search/plan.py
FAN = 8  # states that are merged into one: engines/ray/tree.py
DEPTH = 2  # shards that a worker holds: engines/ray/pool.py


def assumption(default: float, meaning: str) -> Any:
    """A field with its default, and its meaning for --help."""
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True)
class Cluster:
    """What is assumed about a cluster."""

    gpus: int = assumption(8, "of the whole cluster")
    gpus_per_worker: int = assumption(1, "of which one computes at a time")
    noise: float = assumption(0.03, "standard deviation of a shard's time, as a share of it")
    slow: float = assumption(0.02, "share of the workers that are slow, for the whole run")
    slow_speed: float = assumption(0.6, "speed of the slow workers, as a share of the others'")
    hours_between_failures: float = assumption(50_000.0, "of one GPU")
    start: float = assumption(60.0, "seconds until a worker has started, without reading the weights")
    weights_bandwidth: float = assumption(2e9, "bytes per second that a worker reads the model with")
    storage_bandwidth: float = assumption(20e9, "bytes per second of the storage that all share")
    reading: float = assumption(
        1.77e6, "prefixes per second that one driver reads and tokenizes; inf if the text was read before"
    )
    dollars: float = assumption(3.5, "per GPU and hour")


@dataclass(frozen=True)
class Outcome:
    """The result of one simulated search. Times are in seconds."""

    seconds: float
    begin: float  # until the first shard
    storage: float  # that the storage needs for all states
    last_merges: float
    failures: int
    efficiency: float  # the GPUs' shortest possible time over the simulated one


def simulate(shape: dict[str, Any], prefixes: float, cluster: Cluster, seed: int = 0) -> Outcome:
    """One search of so many prefixes."""
    generator = np.random.default_rng(seed)
    per_shard = shape["batch_prefixes"] * BATCHES
    shards = math.ceil(prefixes / per_shard)
    workers = cluster.gpus // cluster.gpus_per_worker
    seconds = per_shard / shape["prefixes_per_second"]
    begin = cluster.start + 2 * shape["parameters"] / cluster.weights_bandwidth
    computed, failures = _compute(generator, cluster, workers, shards, seconds, per_shard, begin)
    storage = _traffic(shards) * shape["state_bytes"] / cluster.storage_bandwidth
    last = _last_merges(shards, shape)
    whole = max(computed, begin + storage) + last
    best = prefixes / shape["prefixes_per_second"] / workers
    return Outcome(whole, begin, storage, last, failures, best / whole)


def _compute(
    generator: np.random.Generator,
    cluster: Cluster,
    workers: int,
    shards: int,
    seconds: float,
    per_shard: float,
    begin: float,
) -> tuple[float, int]:
    """When the last shard is finished, and how many workers have failed by then."""
    speed = np.where(generator.random(workers) < cluster.slow, cluster.slow_speed, 1.0)
    between = cluster.hours_between_failures * 3600 / cluster.gpus_per_worker
    failing = begin + generator.exponential(between, workers)
    free = [(begin, worker) for worker in range(workers)]  # when each can take a shard
    heapq.heapify(free)
    waiting, failures, end = list(range(shards))[::-1], 0, begin
    while waiting:
        now, worker = heapq.heappop(free)
        shard = waiting.pop()
        now = max(now, begin + (shard + 1) * per_shard / cluster.reading)
        done = now + seconds * max(0.1, generator.normal(1.0, cluster.noise)) / speed[worker]
        if failing[worker] < done:  # it starts anew, and what it had runs again
            failures += 1
            done = failing[worker] + begin
            failing[worker] = done + generator.exponential(between)
            waiting.append(shard)
        else:
            end = max(end, done)
        heapq.heappush(free, (done, worker))
    # In the end the slowest worker may hold further shards, though others wait.
    return end + (DEPTH - 1) * seconds / float(speed.min()) * float(speed.min() < 1), failures


def _traffic(shards: int) -> float:
    """How often a state is written or read, over all levels of the tree."""
    return 2 * sum(shards / FAN**level for level in range(_levels(shards) + 1))


def _levels(shards: int) -> int:
    return max(1, math.ceil(math.log(max(2, shards), FAN)))


def _last_merges(shards: int, shape: dict[str, Any]) -> float:
    """The merges that can only begin with the last shard: one of each level, then the driver reads the result."""
    merge = FAN * shape["read_seconds"] + (FAN - 1) * shape["merge_seconds"] + shape["write_seconds"]
    return _levels(shards) * merge + shape["read_seconds"]


def mean(shape: dict[str, Any], prefixes: float, cluster: Cluster, runs: int = 20) -> tuple[Outcome, float]:
    """The mean outcome of several searches, and the time of the slowest."""
    outcomes = [simulate(shape, prefixes, cluster, seed) for seed in range(runs)]
    fields = {name: float(np.mean([getattr(run, name) for run in outcomes])) for name in Outcome.__annotations__}
    return Outcome(**fields), max(run.seconds for run in outcomes)  # type: ignore[arg-type]


# The table of docs/scaling.md: 70 B in bfloat16 needs two GPUs, of which one computes at a time.
CASES = [("8b", 1), ("70b", 2)]
GPUS = (8, 64, 512)


def table(prefixes: float = 1e9) -> str:
    """The table, in Markdown."""
    shapes = json.loads(MEASURED.read_text())["shapes"]
    lines = [
        "| model | H200s | text | time | slowest of 20 | start | last merges | storage busy | efficiency | cost |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, gpus_per_worker in CASES:
        for gpus in GPUS:
            for text, rate in {"read beside it": Cluster.reading, "read before": math.inf}.items():
                cluster = Cluster(gpus=gpus, gpus_per_worker=gpus_per_worker, reading=rate)
                outcome, slowest = mean(shapes[name], prefixes, cluster)
                cost = outcome.seconds / 3600 * gpus * cluster.dollars
                lines.append(
                    f"| {name.upper()} | {gpus} | {text} | {duration(outcome.seconds)} | {duration(slowest)} | "
                    f"{duration(outcome.begin)} | {duration(outcome.last_merges)} | {duration(outcome.storage)} | "
                    f"{outcome.efficiency:.0%} | ${cost:,.0f} |"
                )
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Minutes below two hours, else hours."""
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["1b", "8b", "70b"], help="by default the table is printed")
    parser.add_argument("--prefixes", type=float, default=1e9)
    for row in fields(Cluster):
        option, meaning = f"--{row.name.replace('_', '-')}", f"{row.metadata['help']} ({row.default:g})"
        parser.add_argument(option, type=row.type, default=row.default, help=meaning)
    options = vars(parser.parse_args())
    model, prefixes = options.pop("model"), options.pop("prefixes")
    if model is None:
        print(table(prefixes))
        return
    outcome, slowest = mean(json.loads(MEASURED.read_text())["shapes"][model], prefixes, replace(Cluster(), **options))
    print(f"{duration(outcome.seconds)} on average, {duration(slowest)} at most: {outcome}")


if __name__ == "__main__":
    main()
