"""The `jacobian` lens: the mean Jacobian of the layers above, in place of a trained map.

Gurnee et al. (2026), Verbalizable Representations Form a Global Workspace in Language Models.
"""

from ffscope.models.lenses.learned.base import AffineLens


class JacobianLens(AffineLens):
    """One mean Jacobian per layer and state; its biases are zero."""

    name = "jacobian"


LENS = JacobianLens
