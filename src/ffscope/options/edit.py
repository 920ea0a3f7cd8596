"""How an edit is written, and how one that promotes a token is searched for."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.options.fields import Checked, Help


@dataclass(frozen=True)
class WrittenOptions(Checked):
    """What is measured of an edit, and the precision in which it is written."""

    study: Annotated[
        str | None,
        Help("A study of the model; the side effects of the edit are measured on its held-out text.", metavar="DIR"),
    ] = None
    prefixes: Annotated[int, Help("About how many held-out prefixes these are measured at.", min=1)] = 5000
    full_precision: Annotated[
        bool,
        Help(
            "Write the weights in float32, if the precision of the files would round changed values.",
            flag="--full-precision",
        ),
    ] = False
    position: Annotated[
        int, Help("With --promote: the token of the text after which to predict; negative counts from the end.")
    ] = -1
    bos: Annotated[bool, Help("With --promote: prepend the BOS token.", flag="--bos/--no-bos")] = True


@dataclass(frozen=True)
class PromoteOptions(Checked):
    """The largest edit that is allowed, and how many memories are tried."""

    max_memories: Annotated[int, Help("With --promote: the largest number of memories that are changed.", min=1)] = 20
    max_factor: Annotated[
        float,
        Help(
            "With --promote: the largest factor of a coefficient; 1 only suppresses memories. The smallest is 0.", min=1
        ),
    ] = 4.0
    candidates: Annotated[
        int,
        Help(
            "With --promote: how many memories are tried at each step, those with the largest estimated effect.", min=1
        ),
    ] = 64
