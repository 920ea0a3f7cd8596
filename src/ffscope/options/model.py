"""How a model is loaded."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from ffscope.options.fields import Checked, Help


@dataclass(frozen=True)
class SourceOptions(Checked):
    """How a model's files are read."""

    trust_remote_code: Annotated[
        bool,
        Help(
            "Run Python code that is part of the model's repository. Only if you trust it.", flag="--trust-remote-code"
        ),
    ] = False
    model_type: Annotated[
        str | None,
        Help("The architecture, such as bert, of a model whose config.json has no model_type.", metavar="TYPE"),
    ] = None


@dataclass(frozen=True)
class DeviceOptions(SourceOptions):
    """The device a model runs on."""

    device: Annotated[str, Help("Device to run on: auto, cpu, cuda, cuda:1 …")] = "auto"
    device_map: Annotated[
        str | None,
        Help(
            "Spread a model that is too large for one GPU over all GPUs and main memory: auto, balanced or sequential, as in "
            "transformers. Instead of --device.",
            metavar="MAP",
        ),
    ] = None


@dataclass(frozen=True)
class LoadOptions(DeviceOptions):
    """The device and precision a model runs in."""

    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16", "float64"],
        Help("Precision of the weights; auto is float32 on a CPU, otherwise the checkpoint's own."),
    ] = "auto"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `ffscope.load`."""
        return asdict(self)


@dataclass(frozen=True)
class ReloadOptions(DeviceOptions):
    """The model of a study. The study records its location and precision."""

    model: Annotated[str | None, Help("Path or hub name of the model, if it has moved since the study was made.")] = (
        None
    )
