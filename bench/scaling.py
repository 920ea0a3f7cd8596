"""What the arithmetic of docs/scaling.md needs, measured on one machine with a GPU: rates of a search, and costs of its states.

python bench/scaling.py --out bench/h200.json      prints, and writes the numbers that bench/simulate_cluster.py reads

Shapes are those of Llama 3; a model that is larger than the GPU is measured with some of its layers, since all are alike.
"""

import argparse
import json
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from ffscope import read
from ffscope.corpus.batches import Batch
from ffscope.engines.ray.storage import Storage
from ffscope.models.info import describe
from ffscope.search.execute import Search, execute
from ffscope.search.merge import merge
from ffscope.search.plan import batch_rows, batch_tokens
from ffscope.search.state_copy import start_copy

# layers, layers measured, hidden, memories per layer, heads, key–value heads
SHAPES = {
    "tiny": (4, 2, 64, 256, 2, 1),
    "1b": (16, 16, 2048, 8192, 32, 8),
    "8b": (32, 16, 4096, 14336, 32, 8),
    "70b": (80, 8, 8192, 28672, 64, 8),
}
_LENGTH = 33  # of a sentence, with BOS
_RARITY = 1024  # of a long text


def seconds(run: Any, *, rounds: int = 1) -> float:
    """The mean time of a call."""
    start = time.perf_counter()
    for _ in range(rounds):
        run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / rounds


def random_batches(count: int, tokens: int, vocab: int) -> list[Batch]:
    """Sentences of one length."""
    generator, rows = np.random.default_rng(0), max(1, tokens // _LENGTH)
    first = np.arange(rows, dtype=np.int64) * (_LENGTH - 1)
    return [
        Batch(
            np.arange(rows) + number * rows,
            first + number * rows * (_LENGTH - 1),
            generator.integers(3, vocab, (rows, _LENGTH - 1), dtype=np.int32),
        )
        for number in range(count)
    ]


def measure(name: str, device: str, dtype: torch.dtype, batches: int) -> dict[str, Any]:
    """The numbers of one shape."""
    layers, measured, hidden, memories, heads, groups = SHAPES[name]
    vocab = 128256 if name != "tiny" else 1000
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=memories,
        num_hidden_layers=measured,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        dtype=dtype,
    )
    torch.manual_seed(0)
    with torch.device(device):
        torch.set_default_dtype(dtype)
        weights = LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
    model = read(weights)
    info = describe(model)
    tokens = min(batch_tokens(info, _RARITY), batch_rows(info) * _LENGTH)
    some = random_batches(batches + 2, tokens, vocab)
    execute(Search(model, top=50, rarity=_RARITY), some[:2])  # warm-up
    took = seconds(lambda: execute(Search(model, top=50, rarity=_RARITY), some[2:]))
    prefixes = sum(batch.tokens.size for batch in some[2:])
    search = Search(model, top=50, rarity=_RARITY)
    state = execute(search, some[2:3])
    share = layers / measured  # of the whole model
    return {
        "parameters": int(share * sum(p.numel() for p in model.model.model.layers.parameters())) + 2 * vocab * hidden,
        "prefixes_per_second": prefixes / took / share,
        "batch_prefixes": some[0].tokens.size,
        **{key: value * share for key, value in state_costs(search, state).items()},
    }


def state_costs(search: Search, state: dict[str, torch.Tensor]) -> dict[str, float]:
    """The bytes of a state, and the seconds it takes to make one, bring it to main memory, write, read and merge it."""
    here = {key: tensor.cpu().contiguous() for key, tensor in state.items()}
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(folder)

        def write() -> None:
            with storage.writing("state") as path:
                save_file(here, path)

        def read_and_copy() -> None:  # since a file that is only mapped is not read
            with storage.reading("state") as path:
                _ = [tensor.clone() for tensor in load_file(path).values()]

        costs = {
            "begin": seconds(lambda: Search(search.model, top=50, rarity=_RARITY), rounds=3),
            "to_main_memory": seconds(lambda: start_copy(search.accumulators.state())(), rounds=3),
            "write": seconds(write, rounds=3),
            "read": seconds(read_and_copy, rounds=3),
            "merge": seconds(lambda: merge([here, here]), rounds=2),
        }
        size = (Path(folder) / "state").stat().st_size
    return {"state_bytes": size, **{f"{key}_seconds": value for key, value in costs.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=["1b", "8b", "70b"], choices=SHAPES)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    where = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor()
    results: dict[str, Any] = {"device": where, "torch": torch.__version__, "dtype": options.dtype, "shapes": {}}
    for name in options.shapes:
        results["shapes"][name] = measure(name, options.device, getattr(torch, options.dtype), options.batches)
        print(name, json.dumps(results["shapes"][name]), flush=True)
        if options.device == "cuda":
            torch.cuda.empty_cache()
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
