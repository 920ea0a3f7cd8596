"""The `tuned` lens: translators trained so that what the head reads from them is what the model predicts in the end.

Belrose et al. (2023), Eliciting Latent Predictions from Transformers with the Tuned Lens.
"""

from ffscope.models.lenses.learned.base import AffineLens


class TunedLens(AffineLens):
    """One trained affine map per layer and state."""

    name = "tuned"


LENS = TunedLens
