"""Which model is loaded, and how."""

from dataclasses import dataclass
from typing import Annotated, Literal

from ffscope.options.fields import Checked, Help


@dataclass(frozen=True)
class SourceOptions(Checked):
    """How a model's files are read."""

    trust_remote_code: Annotated[
        bool, Help("Run code that comes with the model. Only if you trust it.", flag="--trust-remote-code")
    ] = False
    model_type: Annotated[
        str | None, Help("The model's type, such as bert, for a config.json without model_type.", metavar="TYPE")
    ] = None


@dataclass(frozen=True)
class DeviceOptions(SourceOptions):
    """Where a model runs."""

    device: Annotated[str, Help("Where to run: auto, cpu, cuda, cuda:1 …")] = "auto"


@dataclass(frozen=True)
class LoadOptions(DeviceOptions):
    """Where and in which precision a model runs."""

    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16", "float64"],
        Help("Precision; auto is float32 on a CPU, else the model's own."),
    ] = "auto"


@dataclass(frozen=True)
class ReloadOptions(DeviceOptions):
    """The model of a study, which knows where it was and in which precision it was studied."""

    model: Annotated[str | None, Help("Where the model is now, if not where the study was made with it.")] = None
