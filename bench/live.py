"""How long a live model takes to answer the explorer, idle and beside busy programs: `python bench/live.py MODEL … [--busy 0 2]`.

Every way of choosing threads has a process of its own, since OpenMP reads its settings once; they take turns, so that what else the
machine does slows all of them. Prints a Markdown table of medians, in seconds.
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
COLOURED = 15  # sentences that a memory's page colours at first
PAUSE = 2.5  # seconds after which an earlier answer no longer counts as load


def questions(live):
    """What is measured, by name."""
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


def answer_questions(options) -> None:
    """One process: answers what it is asked on standard input, and says how long each answer took."""
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
    asked = questions(live)
    print(json.dumps([str(live.model), str(live.model.device), str(live.model.dtype), list(asked)]), flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        choose()
        asked[line.strip()]()
        print(time.perf_counter() - start, flush=True)


@contextmanager
def workers(model: str, options):
    """A process for each way of choosing threads."""
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
    """Programs that keep a core busy each."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def measure(started, question: str, rounds: int) -> dict[str, float]:
    """The median over some rounds, in each of which every process answers once."""
    took = {name: [] for name in started}
    for _ in range(rounds):
        for name, worker in started.items():
            time.sleep(PAUSE)
            worker.stdin.write(f"{question}\n")
            worker.stdin.flush()
            took[name].append(float(worker.stdout.readline()))
    return {name: statistics.median(seconds) for name, seconds in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--busy", type=int, nargs="+", default=[0], help="how many busy programs run beside it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="measure the questions whose name holds this")
    parser.add_argument("--worker", choices=THREADS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return answer_questions(options)
    for model in options.models:
        with workers(model, options) as (started, (name, device, dtype, asked)):
            print(f"\n{name}, {device}, {dtype}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before\n")
            columns = [f"{count} busy, {threads}" for count in options.busy for threads in THREADS]
            print(f"| seconds, threads: | {' | '.join(columns)} |\n| --- |{' --- |' * len(columns)}")
            for question in [one for one in asked if options.only in one]:
                row: list[float] = []
                for count in options.busy:
                    with busy(count):
                        measure(started, question, 1)
                        row += measure(started, question, options.rounds).values()
                print(f"| {question} | {' | '.join(f'{seconds:.2f}' for seconds in row)} |", flush=True)


if __name__ == "__main__":
    main()
