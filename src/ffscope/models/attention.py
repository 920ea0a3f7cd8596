"""Which of torch's attention kernels run."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def kernels_for_any_shape(device: torch.device) -> Iterator[None]:
    """Within the block, torch's attention does not use cuDNN.

    cuDNN builds a plan for every new batch size and length, 5 ms in each layer. Over sentences of many lengths that takes several
    times as long as the passes; the other kernels take any shape at once.
    """
    cudnn = device.type == "cuda" and torch.backends.cuda.cudnn_sdp_enabled()
    if not cudnn:
        yield
        return
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
