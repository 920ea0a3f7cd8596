"""Whose prediction a layer's output is: the four cases of prediction change."""

from typing import Literal

Case = Literal["agreement", "residual", "ffn", "composition"]
CASES: tuple[Case, ...] = ("residual", "agreement", "composition", "ffn")  # as figure 11 stacks them


def case(residual_top: int, ff_top: int, output_top: int) -> Case:
    """Whether the output keeps the residual's prediction, the feed-forward layer's, both or neither."""
    if residual_top == output_top:
        return "agreement" if ff_top == output_top else "residual"
    return "ffn" if ff_top == output_top else "composition"
