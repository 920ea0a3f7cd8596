"""Time and memory of projecting all values of a model (limit: 1 GiB above the loaded model), and its matrix product alone.

python bench/values.py [--device cuda] [--dtype bfloat16]    GPT-2's size
python bench/values.py --shape adaptive --layers 1           the paper's own architecture at its size, one layer of sixteen

Random weights, since only the sizes matter. The product and the stage take turns, layer by layer.
"""

import argparse
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import torch
from peak import memory, reset_peak
from transformers import GPT2Config, GPT2LMHeadModel

from ffscope import MemoryModel, read
from ffscope.analysis.values import value_columns
from ffscope.models.adaptive_lm import AdaptiveLM, AdaptiveLMConfig
from ffscope.models.fingerprint import manifest_entry
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS

ROWS = 128  # multiplied at once by the product alone; more are no faster


def random_model(shape: str, layers: int | None) -> torch.nn.Module:
    """A model with random weights: all its layers, or the first few."""
    torch.manual_seed(0)
    if shape == "adaptive":
        return AdaptiveLM(AdaptiveLMConfig(num_hidden_layers=layers or 16))
    return GPT2LMHeadModel(GPT2Config(n_layer=layers or 12))


def write_triggers(study: Study, memories: tuple[int, ...], vocab: int) -> None:
    """Write one artificial trigger per memory, so that there is a next token to rank; these are from the whole vocabulary."""
    layers = np.repeat(np.arange(len(memories)), memories)
    ones = np.ones_like(layers)
    columns = {"layer": layers, "memory": np.concatenate([np.arange(count) for count in memories]), "rank": ones}
    columns |= {
        "coefficient": ones,
        "sentence": ones,
        "position": ones,
        "next_token": np.arange(len(layers)) * 97 % vocab,
    }
    with study.table("triggers.parquet") as writer:
        writer.write_table(pa.Table.from_pydict(columns, SCHEMAS["triggers.parquet"]))
    study.finish("triggers", {}, seconds=0.0)


@torch.no_grad()
def multiply(model: MemoryModel, layer: int, out: torch.Tensor) -> None:
    """The products of a layer's values with the unembedding, and nothing else."""
    head = model.model.get_output_embeddings()
    bands = [(None, head.words()), *head.tails()] if hasattr(head, "tails") else [(None, head.weight)]
    for values in model.values(layer).float().split(ROWS):
        start = 0
        for narrowing, rows in bands:
            states = values if narrowing is None else values @ narrowing.float().T
            torch.mm(states, rows.float().T, out=out[: len(values), start : start + len(rows)])
            start += len(rows)


def seconds(work: Callable[[], object]) -> float:
    """How long something takes."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    start = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=["gpt2", "adaptive"], default="gpt2")
    parser.add_argument("--layers", type=int, help="make a model of so many layers")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    model = read(random_model(options.shape, options.layers).to(options.device, getattr(torch, options.dtype)))
    lens = model.lens()
    out = torch.empty(ROWS, -(-model.vocab // 32) * 32, device=options.device)  # aligned rows, which are faster
    multiply(model, 0, out)  # once, to exclude one-time costs
    reset_peak()
    before = memory("VmRSS")
    if options.device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        on_device = torch.cuda.memory_allocated()
    products, stage = [], []
    with tempfile.TemporaryDirectory() as folder, Study.writing(folder, manifest_entry(model)) as study:
        write_triggers(study, model.memories, model.vocab)
        for layer in range(model.layers):
            products.append(seconds(lambda layer=layer: multiply(model, layer, out)))
            stage.append(seconds(lambda layer=layer: value_columns(study, model, layer, lens)))
    print(f"{sum(model.memories):,} values over {model.vocab:,} tokens in {sum(stage):.1f} s")
    print(f"the product alone {sum(products):.1f} s: ratio {sum(stage) / sum(products):.2f}")
    print(f"peak above the model: {(memory('VmHWM') - before) // 1024:,} MiB of main memory")
    if options.device != "cpu":
        peak = torch.cuda.max_memory_allocated() - on_device
        print(f"and {peak // 2**20:,} MiB of device memory")


if __name__ == "__main__":
    main()
