"""What could make the search faster than torch's eager forward pass, tried on one batch of the paper's shape on a GPU.

Compiled blocks, CUDA graphs, products in FP8, and ReLU and the sentence's maximum in one kernel. The results are in
docs/performance.md.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from end_to_end import make_model

from ffscope import read
from ffscope.models.attention import kernels_for_any_shape
from ffscope.search.execute import Search
from ffscope.search.highest import highest

BATCH, LENGTH, HIDDEN, MEMORIES = 4096, 32, 1024, 4096
CUDA = torch.device("cuda")


def seconds(run: Callable[[], Any], rounds: int = 10) -> float:
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(rounds):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / rounds


def report(name: str, run: Callable[[], Any], tokens: int = BATCH * LENGTH) -> None:
    try:
        mean = seconds(run)
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
        return
    print(f"{name}: {1e3 * mean:.2f} ms, {tokens / mean:,.0f} tokens/s", flush=True)


def products() -> None:
    """One layer's two products, in bfloat16 and in FP8."""
    x = torch.randn(BATCH * LENGTH, HIDDEN, device=CUDA, dtype=torch.bfloat16)
    key = torch.randn(MEMORIES, HIDDEN, device=CUDA, dtype=torch.bfloat16)
    small_x, small_key = x.to(torch.float8_e4m3fn), key.to(torch.float8_e4m3fn)
    unit = torch.ones((), device=CUDA)
    report("x·keys, bfloat16", lambda: x @ key.T)
    report(
        "x·keys, FP8",
        lambda: torch._scaled_mm(small_x, small_key.T, scale_a=unit, scale_b=unit, out_dtype=torch.bfloat16),
    )
    report("rounding x to FP8", lambda: x.to(torch.float8_e4m3fn))
    exact, rounded = (
        (x @ key.T).float(),
        torch._scaled_mm(small_x, small_key.T, unit, unit, out_dtype=torch.bfloat16).float(),
    )
    error = (exact - rounded).abs()
    print(f"  error of FP8: mean {error.mean():.3f}, largest {error.max():.2f}; standard deviation {exact.std():.2f}")


def reductions() -> None:
    """Reading the coefficients once for ReLU, once for the maximum."""
    x = torch.randn(BATCH, LENGTH, MEMORIES, device=CUDA, dtype=torch.bfloat16)
    best = torch.empty(BATCH, MEMORIES, device=CUDA)
    position = torch.empty(BATCH, MEMORIES, device=CUDA, dtype=torch.int16)
    report("ReLU of one layer", lambda: torch.relu(x))
    report("highest of one layer", lambda: highest(x, best, position))
    compiled = torch.compile(lambda x: (torch.relu(x), torch.relu(x).max(1)))
    report("both, compiled into one", lambda: compiled(x))


@torch.no_grad()
def passes() -> None:
    """The bare body: eager, compiled and as a CUDA graph; and the search."""
    model = read(make_model("paper", 16384).to(CUDA, torch.bfloat16))
    body = model.model.base_model
    ids = torch.randint(16384, (BATCH, LENGTH), device=CUDA)
    with kernels_for_any_shape(CUDA):
        report("bare body, eager", lambda: body(input_ids=ids, use_cache=False))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body(input_ids=ids, use_cache=False)
        report("bare body, CUDA graph", graph.replay)
        start = time.perf_counter()
        compiled = torch.compile(body)
        compiled(input_ids=ids, use_cache=False)
        torch.cuda.synchronize()
        print(f"  compiling: {time.perf_counter() - start:.0f} s")
        report("bare body, compiled", lambda: compiled(input_ids=ids, use_cache=False))
    report("search", _search(model, ids))


def _search(model: Any, ids: torch.Tensor) -> Callable[[], Any]:
    import numpy as np

    from ffscope.corpus.batches import Batch

    search = Search(model, top=50, bos=False, rarity=1024)
    tokens = ids.cpu().numpy()
    numbers = np.arange(BATCH)
    stack = search.tapping()
    stack.__enter__()
    prepared = search.prepare(Batch(numbers, numbers * LENGTH, tokens))
    return lambda: search.run_prepared(prepared)


if __name__ == "__main__":
    print(torch.__version__, torch.cuda.get_device_name())
    products()
    reductions()
    passes()
