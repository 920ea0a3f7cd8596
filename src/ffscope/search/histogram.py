"""What is counted of every memory: its highest coefficient, and how its coefficients are distributed."""

from bisect import bisect_right

import torch
from torch import Tensor

from ffscope.axes import Float

_LOWEST, _HIGHEST = -8, 12  # exponents of the outer edges
_SIDE = _HIGHEST - _LOWEST + 2  # bins on either side of 0
EDGES = [2.0**exponent for exponent in range(_LOWEST, _HIGHEST + 1)]
"""Where the bins of |coefficient| part; `bin_of` says how they are laid out."""
BINS = 2 * _SIDE + 1
ABOVE_ZERO = slice(_SIDE + 1, BINS)
"""The bins of coefficients above 0: where a memory fires."""


def bin_of(coefficient: float) -> int:
    """The bin of a coefficient: 22 bins below 0, 0 itself, 22 above; by magnitude, from an edge up to the next."""
    magnitude = bisect_right(EDGES, abs(coefficient)) + 1
    return _SIDE + (magnitude if coefficient > 0 else -magnitude if coefficient < 0 else 0)


def _sign_and_exponent(coefficients: Tensor) -> Tensor:
    """The first nine bits of a float32. The edges are powers of two, so they tell its bin; below 1e-38 all is 0 to them."""
    return (coefficients.view(torch.int32) >> 23) & 511


_BINS_OF = torch.tensor(
    [bin_of((1 - 2 * (bits >> 8)) * (2.0 ** ((bits & 255) - 127) if bits & 255 else 0.0)) for bits in range(512)],
    dtype=torch.int32,
)


# Sums of float64 depend on the order, unless each is exact: a sum of multiples of 2**-10 is, up to 2**43, and one of multiples of
# 2**-42 up to 2**11. So the sum of each batch is split into a multiple of 2**-10 and a rest, of 2**-11 at most, that is rounded to
# a multiple of 2**-42. The sum of the rests is exact for 2**22 batches. That of the multiples is as long as the coefficients'
# magnitudes at picked prefixes add up to less than 2**43: with 2**22 of these, which is one in 1,024 of all prefixes that can be
# numbered, 2,097,152 on average.
_COARSE, _FINE = 2.0**10, 2.0**42


def _split(sums: Tensor) -> tuple[Tensor, Tensor]:
    """Sums (float64) as multiples of 2**-10 and the rests; only the last rounding of a rest loses anything."""
    coarse = (sums * _COARSE).round() / _COARSE
    return coarse, ((sums - coarse) * _FINE).round() / _FINE


class Histogram:
    """Counts of every memory: the maximum over all prefixes, sum and histogram over picked ones."""

    def __init__(self, memories: int, device: torch.device) -> None:
        self.maximum = torch.full((memories,), -torch.inf, device=device)
        self.total_coarse = torch.zeros(memories, dtype=torch.float64, device=device)
        self.total_fine = torch.zeros_like(self.total_coarse)
        self.histogram = torch.zeros((memories, BINS), dtype=torch.int64, device=device)
        self._bins = _BINS_OF.to(device)
        self._first_bins = torch.arange(0, memories * BINS, BINS, dtype=torch.int32, device=device)

    @property
    def total(self) -> Float[Tensor, "memory"]:
        """The sum of the coefficients at picked prefixes."""
        return self.total_coarse + self.total_fine

    def watch(self, best: Float[Tensor, "batch memory"], picked: Float[Tensor, "rows memory"]) -> None:
        """Take in a batch, given each sentence's highest coefficients, and all coefficients at the picked prefixes."""
        # A batch is added up in one order always: which sentences share one is fixed, and only the order of batches is not.
        coarse, fine = _split(picked.sum(0, dtype=torch.float64))
        self.total_coarse += coarse
        self.total_fine += fine
        torch.maximum(self.maximum, best.amax(0), out=self.maximum)

    def sort(self, coefficients: Float[Tensor, "rows some"], columns: slice) -> None:
        """Put some memories' coefficients at some prefixes into their histograms."""
        histogram = self.histogram[columns]
        flat = (self._bins[_sign_and_exponent(coefficients)] + self._first_bins[: len(histogram)]).flatten()
        histogram += torch.bincount(flat, minlength=histogram.numel()).view_as(histogram)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        return {name: getattr(self, name) for name in ("maximum", "total_coarse", "total_fine", "histogram")}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a checkpoint."""
        for name, held in self.state().items():
            held.copy_(state[name])
