"""How a prediction is traced."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.models.lenses import lens_names
from ffscope.options.fields import Checked, Help


@dataclass(frozen=True)
class TraceOptions(Checked):
    """What is shown of every layer, and how it is read."""

    memories: Annotated[int, Help("Memories shown per layer.", min=1)] = 3
    layers: Annotated[str | None, Help("Layers, such as 0,24-29; all by default.")] = None
    lens: Annotated[
        str,
        Help("How vectors are read over the vocabulary: as the model itself does, or as h·E.", choices=lens_names),
    ] = "norm"
    bos: Annotated[bool, Help("Put the BOS token in front of the text.", flag="--bos/--no-bos")] = True
