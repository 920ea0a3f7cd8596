"""Sums over positions, compared with float64 and, on a GPU, the kernel with plain torch."""

import pytest
import torch

import tiny
from ffscope.effects.position_sums import plain_sums, position_sums

SHAPES = [(7, 13, 300), (3, 1, 50), (65, 128, 1024)]


@pytest.mark.parametrize("device", tiny.DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_over_positions_are_those_in_float64(shape, dtype, device):
    generator = torch.Generator().manual_seed(0)
    # Longer texts of more memories from which both are slices, as in layers of experts: rows that are not next to each other.
    whole = [torch.randn(shape[0], shape[1] + 2, shape[2] + 5, generator=generator).to(device, dtype) for _ in range(2)]
    coefficients, gradient = (tensor[:, 1:-1, 3:-2] for tensor in whole)
    products, sizes = position_sums(coefficients, gradient, sizes=True)
    only, none = position_sums(coefficients, gradient, sizes=False)
    exact = (coefficients.double() * gradient.double()).sum(1)
    # A product that plain torch writes in half precision is rounded.
    rounding = shape[1] * torch.finfo(dtype if device == "cpu" else torch.float32).eps
    torch.testing.assert_close(products.double(), exact, rtol=0, atol=rounding * float(exact.abs().max()) + 1e-5)
    torch.testing.assert_close(sizes.double(), gradient.double().abs().sum(1), rtol=1e-5, atol=1e-6)
    assert torch.equal(only, products)
    assert none is None
    assert products.dtype == sizes.dtype == torch.float32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gradient_that_is_not_a_number_is_not_hidden():
    coefficients, gradient = torch.randn(2, 3, 5, 40, device="cuda")
    gradient[1, 2, 7] = torch.nan
    for sums in (position_sums(coefficients, gradient, sizes=True), plain_sums(coefficients, gradient, True)):
        assert [int(tensor.isnan().sum()) for tensor in sums] == [1, 1]
