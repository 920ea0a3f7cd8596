"""How a prediction is traced."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.models.lenses import lens_names
from ffscope.options.fields import Checked, Help


@dataclass(frozen=True)
class TraceOptions(Checked):
    """The layers and memories to show, and the lens."""

    memories: Annotated[int, Help("Number of memories to show per layer.", min=1)] = 3
    layers: Annotated[str | None, Help("Layers to show, such as 0,24-29; all by default.")] = None
    lens: Annotated[
        str,
        Help(
            "How vectors are projected to the vocabulary: norm, as the model itself does, through the final norm and the "
            "unembedding; raw, through the unembedding alone, as in the paper; tuned and jacobian, as learned by `ffscope lens`.",
            choices=lens_names,
        ),
    ] = "norm"
    study: Annotated[str | None, Help("The study that a learned lens is saved with.", metavar="DIR")] = None
    bos: Annotated[bool, Help("Prepend the BOS token.", flag="--bos/--no-bos")] = True
