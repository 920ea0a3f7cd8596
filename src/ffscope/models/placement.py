"""Where a model's weights are: on one device, or spread by accelerate over several, with some loaded only while they are used."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from ffscope.errors import LayoutError, SourceError

DeviceMap = str | dict[str, Any] | None
_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")


def check_device_map(device_map: DeviceMap, device: str) -> None:
    """Raise for a device map that cannot be used."""
    if device_map is None:
        return
    if isinstance(device_map, str) and device_map not in _MAPS:
        raise SourceError(f"There is no device map {device_map!r}. Choose one of: {', '.join(_MAPS)}.")
    if device != "auto":
        raise SourceError(
            f"A device map chooses the devices itself. Leave out the device, {device!r}, or the device map."
        )
    if find_spec("accelerate") is None:
        raise SourceError("A device map needs the package accelerate. Install it: python -m pip install accelerate")


def stored(module: nn.Module, name: str) -> Any:
    """A weight of a module, or None; an offloaded one is loaded onto the device where the module runs."""
    weight = getattr(module, name)
    if not isinstance(weight, Tensor) or not weight.is_meta:
        return weight
    from accelerate.utils import align_module_device

    with align_module_device(module):
        weight = getattr(module, name)
    if weight.is_meta:
        raise LayoutError(
            f"The {name} of a {type(module).__name__} is on the meta device, which stores no numbers. Load the model with "
            "ffscope.load, with device_map if it is too large for one device."
        )
    return weight


def input_device(model: Any) -> torch.device:
    """The device of a model's inputs: that of its embeddings, where they run."""
    hook = getattr(model.get_input_embeddings(), "_hf_hook", None)
    device = getattr(hook, "execution_device", None)
    if device is None:
        return model.device
    return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)


def named_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The entries of a model's state dict by name; offloaded weights are loaded one at a time."""
    for name, tensor in sorted(model.state_dict().items()):
        path, _, attribute = name.rpartition(".")
        yield name, stored(model.get_submodule(path), attribute).detach() if tensor.is_meta else tensor
