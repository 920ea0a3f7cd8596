"""Torch's attention kernels over sentences of many lengths: the bare forward pass, three times over the same batches.

python bench/attention.py [--shape paper]
"""

import argparse
import time
from itertools import islice

import torch
from end_to_end import SHAPES, make_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from triggers import random_chunks

from ffscope.corpus.batches import batches

VOCAB = 16384


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="paper")
    parser.add_argument("--batches", type=int, default=40)
    options = parser.parse_args()
    body = make_model(options.shape, VOCAB).to("cuda", torch.bfloat16).base_model
    chunks = random_chunks(400_000, VOCAB, None)
    some = list(islice(batches(chunks, tokens=131072, before=1, rows=5461), options.batches))
    inputs = [torch.from_numpy(batch.tokens).long().cuda() for batch in some]
    tokens = sum(ids.numel() for ids in inputs)
    print(f"{options.shape}, {len(inputs)} batches, {len({ids.shape for ids in inputs})} shapes")
    for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"):
        visits = []
        with sdpa_kernel(getattr(SDPBackend, name)):
            body(input_ids=inputs[0][:8], use_cache=False)
            for _ in range(3):
                torch.cuda.synchronize()
                start = time.perf_counter()
                for ids in inputs:
                    body(input_ids=ids, use_cache=False)
                torch.cuda.synchronize()
                visits.append(tokens / (time.perf_counter() - start))
        print(
            f"  {name}: first visit {visits[0]:,.0f} tokens/s, second {visits[1]:,.0f}, third {visits[2]:,.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
