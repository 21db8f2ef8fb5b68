"""The fused linear operation equals PyTorch's: values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.arithmetic.linear import Linear, linear
from regard.arithmetic.packed import can_pack

pytestmark = pytest.mark.usefixtures("plain_or_loops")

sizes = st.integers(1, 37)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31), sizes, sizes, st.lists(st.integers(0, 5), max_size=3))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients(
    dtype: torch.dtype, seed: int, inputs: int, outputs: int, batch: list[int]
) -> None:
    torch.manual_seed(seed)
    layer = Linear(inputs, outputs).to(dtype)
    x = torch.randn(*batch, inputs, dtype=dtype, requires_grad=True)
    upstream = torch.randn(*batch, outputs, dtype=dtype)
    ours = (x, layer.weight, layer.bias)
    exact = [t.detach().double().requires_grad_() for t in ours]
    found, expected = layer(x), F.linear(*exact)
    near = 1e-5 if dtype == torch.float32 else 0.02
    pairs = zip(
        (found, *torch.autograd.grad(found, ours, upstream)),
        (expected, *torch.autograd.grad(expected, exact, upstream.double())),
        strict=True,
    )
    for mine, right in pairs:
        assert mine.dtype == dtype
        assert mine.shape == right.shape
        assert (mine.double() - right).norm() <= near * (right.norm() + 1e-3)


@pytest.mark.skipif(not can_pack(torch.bfloat16), reason="no bf16 products here")
def test_rows_that_do_not_lie_together() -> None:
    torch.manual_seed(1)
    x = torch.randn(7, 5, 11, dtype=torch.bfloat16).transpose(0, 1)[::2]
    weight, bias = torch.randn(3, 11).bfloat16(), torch.randn(3).bfloat16()
    found = linear(x, weight, bias)
    torch.testing.assert_close(found, F.linear(x.contiguous(), weight, bias), atol=0.05, rtol=0.02)
