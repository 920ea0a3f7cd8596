"""The log frequency of tokens in a text, as a direction in the space of logits."""

import torch
from torch import Tensor

from ffscope.axes import Array, Float, Int

_FEWEST = 3  # tokens that a correlation needs


class FrequencyAxis:
    """The log frequency of the tokens that occur in a text. The others are left out: their frequency is unknown."""

    def __init__(self, counts: Int[Tensor, "vocab"]) -> None:
        self._occurs = (counts > 0).float()
        self._number = self._occurs.sum()
        logs = torch.where(counts > 0, counts.clamp_min(1).double().log(), 0.0)
        centred = torch.where(counts > 0, logs - logs.sum() / self._number, 0.0)
        self._direction = (centred / centred.norm()).float()

    @classmethod
    def of(cls, counts: Int[Array, "tokens"], vocab: int, device: torch.device) -> "FrequencyAxis | None":
        """The axis for logits of `vocab` tokens on a device; None if too few tokens occur or all equally often."""
        sized = torch.zeros(vocab, dtype=torch.int64)
        sized[: len(counts)] = torch.from_numpy(counts[:vocab])
        present = sized[sized > 0]
        return cls(sized.to(device)) if len(present) >= _FEWEST and present.min() < present.max() else None

    def correlations(self, logits: Float[Tensor, "n vocab"]) -> Float[Tensor, "n"]:
        """Pearson's correlation of each row with the log frequency, over the tokens that occur."""
        occurs = self._occurs.to(logits)
        means = logits @ occurs / self._number
        variances = logits.square() @ occurs / self._number - means.square()
        return logits @ self._direction.to(logits) / (self._number * variances.clamp_min(0)).sqrt()
