"""Where the explorer listens, and what its model may be asked."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.options.fields import Checked, Help


@dataclass(frozen=True)
class LiveOptions(Checked):
    """Whether the explorer has a model, and how much may be asked of it at once."""

    no_model: Annotated[bool, Help("Only read: no prompts, no live coefficients.", flag="--no-model")] = False
    max_tokens: Annotated[int, Help("Most tokens of a prompt.", min=1)] = 512
    max_new_tokens: Annotated[int, Help("Most tokens that are generated.", min=1)] = 100
