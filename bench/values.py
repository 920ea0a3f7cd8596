"""Time and memory of projecting all values of a GPT-2-sized model (limit: 1 GiB above the loaded model).

`python bench/values.py [--device cuda] [--dtype bfloat16]`; random weights, since only the sizes matter.
"""

import argparse
import tempfile
import time

import numpy as np
import pyarrow as pa
import torch
from peak import memory, reset_peak
from transformers import GPT2Config, GPT2LMHeadModel

from ffscope import read
from ffscope.analysis.values import read_values
from ffscope.models.fingerprint import manifest_entry
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS


def write_triggers(study: Study, memories: tuple[int, ...], vocab: int) -> None:
    """Write one artificial trigger per memory, so that there is a next token to rank."""
    layers = np.repeat(np.arange(len(memories)), memories)
    ones = np.ones_like(layers)
    columns = {"layer": layers, "memory": np.concatenate([np.arange(count) for count in memories]), "rank": ones}
    columns |= {"coefficient": ones, "sentence": ones, "position": ones, "next_token": np.arange(len(layers)) % vocab}
    with study.table("triggers.parquet") as writer:
        writer.write_table(pa.Table.from_pydict(columns, SCHEMAS["triggers.parquet"]))
    study.finish("triggers", {}, seconds=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    torch.manual_seed(0)
    plain = GPT2LMHeadModel(GPT2Config()).to(options.device, getattr(torch, options.dtype))
    model = read(plain)
    reset_peak()
    before = memory("VmRSS")
    if options.device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        on_device = torch.cuda.memory_allocated()
    with tempfile.TemporaryDirectory() as folder, Study.writing(folder, manifest_entry(model)) as study:
        write_triggers(study, model.memories, model.vocab)
        start = time.perf_counter()
        read_values(study, model)
        seconds = time.perf_counter() - start
    print(f"{sum(model.memories):,} values over {model.vocab:,} tokens in {seconds:.1f} s")
    print(f"peak above the model: {(memory('VmHWM') - before) // 1024:,} MiB of main memory")
    if options.device != "cpu":
        peak = torch.cuda.max_memory_allocated() - on_device
        print(f"and {peak // 2**20:,} MiB of device memory")


if __name__ == "__main__":
    main()
