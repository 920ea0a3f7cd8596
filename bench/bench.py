"""What ffscope costs over the model's own forward pass, on this machine: `make bench`."""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import OPTConfig, OPTForCausalLM

from ffscope import MemoryModel, Trace, read

WIKI16 = Path(__file__).parents[2] / "shared" / "models" / "wiki16"


def model() -> tuple[str, MemoryModel]:
    """The real model where it is at hand, else a random one of the same shape."""
    if WIKI16.is_dir():
        return "wiki16", read(OPTForCausalLM.from_pretrained(WIKI16, dtype=torch.float32))
    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=16384,
        hidden_size=256,
        ffn_dim=1024,
        num_hidden_layers=16,
        num_attention_heads=4,
        max_position_embeddings=512,
        word_embed_proj_dim=256,
    )
    return "random weights, wiki16's shape", read(OPTForCausalLM(config))


def alternating(rounds: int, *runs: Callable[[], object]) -> list[list[float]]:
    """Seconds of each run, taken in turn: what slows the machine down slows all of them down."""
    for run in runs:
        run()
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for taken, run in zip(seconds, runs, strict=True):
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
    return seconds


def trace_over_forward(memories: MemoryModel, rounds: int) -> None:
    """Tracing over the bare forward plus a plain copy of what the trace keeps."""
    ids = torch.randint(memories.vocab or 1, (8, 64), generator=torch.Generator().manual_seed(0))
    inputs = memories.encode(ids)
    kept = tensors(memories.trace(ids))
    forward, copy, traced = alternating(
        rounds,
        lambda: memories.forward(inputs),
        lambda: [tensor.clone() for tensor in kept],
        lambda: memories.trace(ids),
    )
    ratios = [t / (f + c) for f, c, t in zip(forward, copy, traced, strict=True)]
    report("trace over forward + copy", ratios, at_most=1.05)
    for name, seconds in (("forward", forward), ("copy", copy), ("trace", traced)):
        print(f"  {name}: {1e3 * statistics.median(seconds):.0f} ms for 8 × 64 tokens")


def report(name: str, ratios: list[float], *, at_most: float) -> None:
    """The median of a ratio, the middle half of it, and whether it keeps its limit."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    verdict = "holds" if middle <= at_most else "EXCEEDED"
    print(f"{name}: {middle:.3f} ({low:.3f} to {high:.3f}), at most {at_most}: {verdict}")


def tensors(trace: Trace) -> list[torch.Tensor]:
    return [tensor for kind in (trace.coefficients, trace.residual, trace.update, trace.output) for tensor in kind]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    name, memories = model()
    print(f"{name}; torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}")
    trace_over_forward(memories, rounds)


if __name__ == "__main__":
    main()
