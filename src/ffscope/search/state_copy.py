"""Copies the state of a search from a GPU to main memory, while the GPU computes something else."""

from collections.abc import Callable

import torch

from ffscope.search.merge import State


def start_copy(state: State) -> Callable[[], State]:
    """Begin to copy a state to main memory. The function that is returned waits for the copy, in any thread.

    A plain copy would hold up the next search, whose kernels run on the same stream, and pageable memory is slower by far than
    pinned memory, which torch keeps for the next copy.
    """
    device = next(iter(state.values())).device
    if device.type != "cuda":
        return lambda: {name: tensor.cpu().contiguous() for name, tensor in state.items()}
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        copies = {name: _pinned(tensor).copy_(tensor, non_blocking=True) for name, tensor in state.items()}
        copied = stream.record_event()

    def wait() -> State:
        copied.synchronize()
        state.clear()  # until here it had to exist
        return copies

    return wait


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
