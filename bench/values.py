"""What reading all values of a model of GPT-2's size takes: seconds, and memory above the loaded model (limit 1 GiB).

`python bench/values.py [--device cuda] [--dtype bfloat16]`; random weights, since only sizes count.
"""

import argparse
import tempfile
import time

import numpy as np
import pyarrow as pa
import torch
from peak import forget_the_most, memory
from transformers import GPT2Config, GPT2LMHeadModel

from ffscope import read
from ffscope.analysis.values import read_values
from ffscope.models.fingerprint import manifest_entry
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS


def write_triggers(study: Study, memories: tuple[int, ...], vocab: int) -> None:
    """One made-up trigger for every memory, so that there is a next token to rank."""
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
    chosen = parser.parse_args()
    torch.manual_seed(0)
    plain = GPT2LMHeadModel(GPT2Config()).to(chosen.device, getattr(torch, chosen.dtype))
    model = read(plain)
    forget_the_most()
    held = memory("VmRSS")
    if chosen.device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        on_device = torch.cuda.memory_allocated()
    with tempfile.TemporaryDirectory() as folder, Study.writing(folder, manifest_entry(model)) as study:
        write_triggers(study, model.memories, model.vocab)
        start = time.perf_counter()
        read_values(study, model)
        seconds = time.perf_counter() - start
    print(f"{sum(model.memories):,} values over {model.vocab:,} tokens in {seconds:.1f} s")
    print(f"peak above the model: {(memory('VmHWM') - held) // 1024:,} MiB of main memory")
    if chosen.device != "cpu":
        peak = torch.cuda.max_memory_allocated() - on_device
        print(f"and {peak // 2**20:,} MiB of the device's")


if __name__ == "__main__":
    main()
