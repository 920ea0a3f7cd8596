"""The four cases of refinement: which component, residual or feed-forward layer, has the same top token as the output."""

from typing import Literal

Case = Literal["agreement", "residual", "ffn", "composition"]
CASES: tuple[Case, ...] = ("residual", "agreement", "composition", "ffn")  # as figure 11 stacks them
CASE_MEANINGS: dict[Case, str] = {
    "residual": "the output predicts what the residual predicted, not what the feed-forward layer alone predicts",
    "agreement": "residual and feed-forward layer predict the same token, and so does the output",
    "composition": "the output predicts a token that neither the residual nor the feed-forward layer predicts",
    "ffn": "the feed-forward layer overrides the residual: the output predicts what the layer alone predicts",
}


def case(residual_top: int, ff_top: int, output_top: int) -> Case:
    """The case of one example in one layer, from three top tokens."""
    if residual_top == output_top:
        return "agreement" if ff_top == output_top else "residual"
    return "ffn" if ff_top == output_top else "composition"
