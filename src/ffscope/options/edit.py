"""How an edit that promotes a token is searched for."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.options.fields import Checked, Help


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
