"""The highest coefficient, the sum and a histogram of coefficients of every memory."""

from bisect import bisect_right

import torch
from torch import Tensor

from ffscope.axes import Float

_LOWEST, _HIGHEST = -8, 12  # exponents of the outer edges
_SIDE = _HIGHEST - _LOWEST + 2  # bins on either side of 0
EDGES = [2.0**exponent for exponent in range(_LOWEST, _HIGHEST + 1)]
"""The edges of the bins of |coefficient|; see `bin_of` for their order."""
BINS = 2 * _SIDE + 1
ABOVE_ZERO = slice(_SIDE + 1, BINS)
"""The bins of coefficients above 0, on which a memory fires."""


def bin_of(coefficient: float) -> int:
    """The bin of a coefficient: 22 bins below 0, one for 0, 22 above, by magnitude; a bin includes its lower edge."""
    magnitude = bisect_right(EDGES, abs(coefficient)) + 1
    return _SIDE + (magnitude if coefficient > 0 else -magnitude if coefficient < 0 else 0)


def _sign_and_exponent(coefficients: Tensor) -> Tensor:
    """The first nine bits of a float32. The edges are powers of two, so they determine the bin; subnormals count as 0."""
    return (coefficients.view(torch.int32) >> 23) & 511


_BINS_OF = torch.tensor(
    [bin_of((1 - 2 * (bits >> 8)) * (2.0 ** ((bits & 255) - 127) if bits & 255 else 0.0)) for bits in range(512)],
    dtype=torch.int32,
)


# A float64 sum depends on the order of its terms unless it is exact. Sums of multiples of 2**-10 are exact up to 2**43, sums of
# multiples of 2**-42 up to 2**11. So the sum of each batch is split into a multiple of 2**-10 and a remainder of at most 2**-11,
# which is rounded to a multiple of 2**-42. The sum of the remainders is exact for 2**22 batches. The sum of the multiples is exact
# while the magnitudes at picked prefixes add up to less than 2**43: for 2**22 picked prefixes, one in 1,024 of all prefixes that
# can be numbered, that is a mean magnitude of 2,097,152.
_COARSE, _FINE = 2.0**10, 2.0**42


def _split(sums: Tensor) -> tuple[Tensor, Tensor]:
    """float64 sums as multiples of 2**-10 and remainders; only the rounding of the remainders loses precision."""
    coarse = (sums * _COARSE).round() / _COARSE
    return coarse, ((sums - coarse) * _FINE).round() / _FINE


class Histogram:
    """For each memory the maximum over all prefixes, and the sum and histogram over the picked ones."""

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

    def update(self, best: Float[Tensor, "batch memory"], picked: Float[Tensor, "rows memory"]) -> None:
        """Add a batch: the highest coefficients of each sentence, and all coefficients at the picked prefixes."""
        # Within a batch the order of the terms is fixed, since its sentences are; only the order of batches can vary.
        coarse, fine = _split(picked.sum(0, dtype=torch.float64))
        self.total_coarse += coarse
        self.total_fine += fine
        torch.maximum(self.maximum, best.amax(0).float(), out=self.maximum)

    def add(self, coefficients: Float[Tensor, "rows some"], columns: slice) -> None:
        """Add coefficients of some memories at some prefixes to their histograms."""
        histogram = self.histogram[columns]
        # index_select, since indexing is several times slower on a CPU
        bins = self._bins.index_select(0, _sign_and_exponent(coefficients).flatten()).view(coefficients.shape)
        flat = bins.add_(self._first_bins[: len(histogram)]).flatten()
        histogram += torch.bincount(flat, minlength=histogram.numel()).view_as(histogram)

    def state(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint stores."""
        return {name: getattr(self, name) for name in ("maximum", "total_coarse", "total_fine", "histogram")}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore the state of a checkpoint."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
