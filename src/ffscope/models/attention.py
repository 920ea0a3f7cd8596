"""Which of torch's attention kernels run."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

_FASTEST_FIRST = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]


def kernels_for_any_shape(device: torch.device) -> AbstractContextManager[None]:
    """Within the block, torch's attention uses the kernel that is fastest over short texts of many lengths.

    Not cuDNN's: it builds a plan for every new batch size and length, 5 ms in each layer. See bench/attention.py.
    """
    return sdpa_kernel(_FASTEST_FIRST, set_priority=True) if device.type == "cuda" else nullcontext()
