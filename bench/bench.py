"""The overhead of ffscope over the model's own forward pass, on this machine: `make bench`."""

import argparse
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from triggers import Race, random_chunks, random_model

from ffscope import MemoryModel, Trace, load
from ffscope.corpus.batches import Chunk, batches
from ffscope.corpus.ingest import write_sentences
from ffscope.corpus.prefixes import chunks as read_chunks
from ffscope.options.corpus import CorpusOptions
from ffscope.search.plan import batch_rows, batch_tokens
from ffscope.study.folder import Study

SHARED = Path(__file__).parents[2] / "shared"
WIKI16, CORPUS = SHARED / "models" / "wiki16", SHARED / "corpora" / "wiki-train.jsonl.xz"


def model() -> tuple[str, MemoryModel]:
    """The real model if it is available, else a random one of the same shape."""
    if WIKI16.is_dir():
        return "wiki16", load(WIKI16, "cpu", "float32")
    return "random weights, wiki16's shape", random_model("wiki16", device="cpu", dtype=torch.float32)


def alternating(rounds: int, *runs: Callable[[], object]) -> list[list[float]]:
    """Seconds of each function, called in turn, so that a slow machine slows down all of them equally."""
    for run in runs:
        run()
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for durations, run in zip(seconds, runs, strict=True):
            start = time.perf_counter()
            run()
            durations.append(time.perf_counter() - start)
    return seconds


def trace_over_forward(memories: MemoryModel, rounds: int) -> None:
    """The time of a trace relative to the bare forward pass plus a copy of the traced tensors."""
    ids = torch.randint(memories.vocab or 1, (8, 64), generator=torch.Generator().manual_seed(0))
    inputs = memories.encode(ids)
    traced_tensors = tensors(memories.trace(ids))
    forward, copy, traced = alternating(
        rounds,
        lambda: memories.forward(inputs),
        lambda: [tensor.clone() for tensor in traced_tensors],
        lambda: memories.trace(ids),
    )
    ratios = [t / (f + c) for f, c, t in zip(forward, copy, traced, strict=True)]
    report("trace over forward + copy", ratios, at_most=1.05)
    for name, seconds in (("forward", forward), ("copy", copy), ("trace", traced)):
        print(f"  {name}: {1e3 * statistics.median(seconds):.0f} ms for 8 × 64 tokens")


def search(memories: MemoryModel, sentences: int) -> None:
    """The time of the search relative to the bare body, and the share of reading the text."""
    with tempfile.TemporaryDirectory() as folder:
        if memories.tokenizer is None:
            chunks: Iterable[Chunk] = list(random_chunks(sentences, memories.vocab or 1, None))
            prefixes, seconds = sum(len(chunk.tokens) for chunk in chunks), None
        else:
            with Study.writing(folder, {}) as study:
                write_sentences(study, memories.tokenizer, CorpusOptions(str(CORPUS), sentences=sentences))
            chunks = read_chunks(study.path("sentences.parquet"))
            prefixes = study.manifest["corpus"]["searched"]["prefixes"]
            seconds = study.manifest["stages"]["sentences"]["seconds"]
        race = Race(memories, prefixes=prefixes, top=50, bos=memories.tokenizer is not None)
        tokens = batch_tokens(memories, race.search.rarity)
        race.run(batches(chunks, tokens=tokens, before=1, rows=batch_rows(memories)))
    race.report("search over the bare body", at_most=1.10)
    if seconds is not None:
        share = seconds / (seconds + sum(race.searched))
        print(
            f"text → sentences → tokens: {share:.1%} of the whole, at most 1.5 %: {'OK' if share <= 0.015 else 'EXCEEDED'}"
        )


def peak_memory(sentences: int) -> None:
    """The peak memory of a whole search above the loaded model, for a tenth of the sentences and for all."""
    peaks = []
    for count in (sentences // 10, sentences):
        command = [sys.executable, str(Path(__file__).with_name("peak.py")), str(count)]
        peaks.append(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(f"peak memory above the model, {count:,} sentences: {peaks[-1]:,} MiB")


def report(name: str, ratios: list[float], *, at_most: float) -> None:
    """Print the median and quartiles of a ratio, and whether it is within its limit."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    verdict = "OK" if middle <= at_most else "EXCEEDED"
    print(f"{name}: {middle:.3f} ({low:.3f} to {high:.3f}), at most {at_most}: {verdict}")


def tensors(trace: Trace) -> list[torch.Tensor]:
    return [tensor for kind in (trace.coefficients, trace.residual, trace.update, trace.output) for tensor in kind]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--sentences", type=int, default=20_000)
    options = parser.parse_args()
    name, memories = model()
    print(f"{name}; torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}")
    trace_over_forward(memories, options.rounds)
    search(memories, options.sentences)
    peak_memory(options.sentences)


if __name__ == "__main__":
    main()
