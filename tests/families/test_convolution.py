"""Convolutions against torch's, on whole rows and step by step."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.arithmetic.plain import PLAIN
from regard.families.convolution import Convolution


def convolution(kernel: int, dilation: int, *, causal: bool) -> Convolution:
    torch.manual_seed(1)
    layer = Convolution(3, 5, kernel, dilation, causal=causal)
    layer.by = PLAIN
    return layer


def by_torch(layer: Convolution, x: Tensor) -> Tensor:
    # [outputs, kernel * inputs] -> [outputs, inputs, kernel]
    weight = layer.W.weight.view(5, layer.kernel, 3).transpose(1, 2)
    padded = F.pad(x.transpose(1, 2), (layer.before, layer.reach - layer.before))
    return F.conv1d(padded, weight, layer.W.bias, dilation=layer.dilation).transpose(1, 2)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 5), st.sampled_from([1, 2, 4, 16]), st.integers(1, 23), st.booleans())
def test_rows_are_convolved_as_by_torch(
    kernel: int, dilation: int, length: int, causal: bool
) -> None:
    layer, x = convolution(kernel, dilation, causal=causal), torch.randn(2, length, 3)
    torch.testing.assert_close(layer(x), by_torch(layer, x))


@pytest.mark.parametrize(("kernel", "dilation"), [(2, 1), (3, 1), (3, 4), (5, 2)])
def test_steps_compute_the_rows(kernel: int, dilation: int) -> None:
    layer, x = convolution(kernel, dilation, causal=True), torch.randn(2, 11, 3)
    whole, past = layer(x), layer.start(x)
    for position in range(11):
        y, past = layer.step(x[:, position, None], past)
        assert past.shape == (2, 1, layer.reach, 3)
        torch.testing.assert_close(y[:, 0], whole[:, position])


def test_a_centred_kernel_sees_both_sides() -> None:
    layer = convolution(3, 2, causal=False)
    x = torch.zeros(1, 9, 3)
    x[0, 4] = 1
    changed = (layer(x) - layer(torch.zeros_like(x))).abs().sum(-1)[0] > 0
    assert changed.nonzero()[:, 0].tolist() == [2, 4, 6]
