"""Options of the explorer's live model."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.options.fields import Checked, Help


@dataclass(frozen=True)
class LiveOptions(Checked):
    """Whether the explorer loads the model, and the limits of a request."""

    no_model: Annotated[bool, Help("Do not load the model: no prompts, no live coefficients.", flag="--no-model")] = (
        False
    )
    max_tokens: Annotated[int, Help("Maximum length of a prompt in tokens.", min=1)] = 512
    max_new_tokens: Annotated[int, Help("Maximum number of generated tokens.", min=1)] = 100
