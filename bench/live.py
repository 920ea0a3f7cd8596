"""Response times of the explorer's live model, idle and next to busy processes: `python bench/live.py MODEL … [--busy 0 2]`.

Each way of choosing threads runs in a separate process, since OpenMP reads its settings once. The processes take turns, so that
other load slows down all of them equally. Prints a Markdown table of medians, in seconds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager

TEXT = "The capital of France is a city that many people visit"
THREADS = ("default", "one", "chosen")
COLOURED = 15  # sentences that the memory page colours initially
PAUSE = 2.5  # seconds after which an earlier request no longer counts as load


def make_requests(live):
    """The requests to measure, by name."""
    from ffscope.live.interventions import Interventions
    from ffscope.memory_name import Memory

    off = Interventions.parse(zero="L3.17,L4.2")
    tokens = live.model.encode(" ".join([TEXT] * 4), bos=False)["input_ids"][0].tolist()
    sentences = [tokens[: 8 + 2 * number] for number in range(COLOURED)]
    memory = Memory(live.model.layers - 1, 17)
    return {
        "prompt": lambda: live.prompt(TEXT),
        f"colours of {COLOURED} sentences": lambda: live.coefficients(memory, sentences),
        "prompt, memories switched off": lambda: live.prompt(TEXT, interventions=off),
        "another position": lambda: live.prompt(TEXT, of="none"),
        "why": lambda: live.why(TEXT, a="#10", b="#11"),
        "memories of all layers": lambda: live.memories(TEXT),
        "20 new tokens, before and after": lambda: live.generate(TEXT, new_tokens=20, interventions=off),
        "similar memories": lambda: live.similar(memory),
    }


def run_requests(options) -> None:
    """One process: runs the requests named on standard input, and prints the seconds each took."""
    from ffscope.web.model_threads import Threads, sleep_while_waiting

    if options.worker == "chosen":
        sleep_while_waiting()
    import torch

    from ffscope.live.model import Live
    from ffscope.models.loading import load

    if options.worker == "one":
        torch.set_num_threads(1)
    live = Live(load(options.models[0], options.device, options.dtype), bos=True)
    choose = Threads().choose if options.worker == "chosen" else lambda: None
    requests = make_requests(live)
    print(json.dumps([str(live.model), str(live.model.device), str(live.model.dtype), list(requests)]), flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        choose()
        requests[line.strip()]()
        print(time.perf_counter() - start, flush=True)


@contextmanager
def workers(model: str, options):
    """One process for each way of choosing threads."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    command = [sys.executable, __file__, model, "--device", options.device, "--dtype", options.dtype, "--worker"]
    started = {
        name: subprocess.Popen([*command, name], env=environment, stdin=-1, stdout=-1, stderr=-3, text=True)
        for name in THREADS
    }
    try:
        described = [json.loads(worker.stdout.readline()) for worker in started.values()]
        yield started, described[0]
    finally:
        for worker in started.values():
            worker.kill()
            worker.wait()


@contextmanager
def busy(count: int):
    """Processes that each keep a core busy."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def measure(started, request: str, rounds: int) -> dict[str, float]:
    """The median seconds of each process over some rounds."""
    durations = {name: [] for name in started}
    for _ in range(rounds):
        for name, worker in started.items():
            time.sleep(PAUSE)
            worker.stdin.write(f"{request}\n")
            worker.stdin.flush()
            durations[name].append(float(worker.stdout.readline()))
    return {name: statistics.median(seconds) for name, seconds in durations.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument(
        "--busy", type=int, nargs="+", default=[0], help="number of busy processes to run at the same time"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="measure only the requests whose name contains this")
    parser.add_argument("--worker", choices=THREADS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return run_requests(options)
    for model in options.models:
        with workers(model, options) as (started, (name, device, dtype, requests)):
            print(f"\n{name}, {device}, {dtype}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before\n")
            columns = [f"{count} busy, {threads}" for count in options.busy for threads in THREADS]
            print(f"| seconds, threads: | {' | '.join(columns)} |\n| --- |{' --- |' * len(columns)}")
            for request in [request for request in requests if options.only in request]:
                row: list[float] = []
                for count in options.busy:
                    with busy(count):
                        measure(started, request, 1)
                        row += measure(started, request, options.rounds).values()
                print(f"| {request} | {' | '.join(f'{seconds:.2f}' for seconds in row)} |", flush=True)


if __name__ == "__main__":
    main()
