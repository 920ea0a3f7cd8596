"""How long a live model takes to answer the explorer: `python bench/live.py MODEL [DEVICE [DTYPE]]`."""

import sys
import time

import torch

from ffscope.live.interventions import Interventions
from ffscope.live.model import Live
from ffscope.memory import Memory
from ffscope.models.loading import load

TEXT = "The capital of France is a city that many people visit"
OFF = Interventions.parse(zero="L3.17,L4.2")


def best(ask, times=5):
    """Seconds of the quickest of some answers."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        ask()
        took.append(time.perf_counter() - start)
    return min(took)


def main() -> None:
    """One row for every kind of question."""
    source, device, dtype = [*sys.argv[1:], "auto", "auto"][:3]
    live = Live(load(source, device, dtype), bos=True)
    sentence = live.model.encode(TEXT, bos=False)["input_ids"][0].tolist()
    asked = {
        "prompt": lambda: live.prompt(TEXT),
        "prompt, memories switched off": lambda: live.prompt(TEXT, interventions=OFF),
        "another position": lambda: live.prompt(TEXT, of="none"),
        "why": lambda: live.why(TEXT, a="#10", b="#11"),
        "memories of all layers": lambda: live.memories(TEXT),
        "20 new tokens": lambda: live.generate(TEXT, new_tokens=20),
        "20 new tokens, before and after": lambda: live.generate(TEXT, new_tokens=20, interventions=OFF),
        "coefficients of 50 sentences": lambda: live.coefficients(Memory(3, 17), [sentence] * 50),
        "similar memories": lambda: live.similar(Memory(3, 17)),
    }
    print(f"{live.model}, {live.model.device}, {live.model.dtype}, torch {torch.__version__}, {len(sentence)} tokens")
    for name, ask in asked.items():
        print(f"{name:<34}{1000 * best(ask):8.0f} ms")


if __name__ == "__main__":
    main()
