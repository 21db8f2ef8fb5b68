"""The layers of Table 1 against definitions: masked attention, convolutions of sequences, steps."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import attention
from regard.complexity import Sizes
from regard.reproduce.layers import (
    LAYERS,
    Convolutional,
    OneStep,
    Recurrent,
    RestrictedSelfAttention,
    SelfAttention,
)


def drawn(rows: int, n: int, d: int) -> Tensor:
    torch.manual_seed(n)
    return torch.randn(rows, n, d, dtype=torch.float64, requires_grad=True)


@settings(deadline=None)
@given(n=st.integers(1, 40), r=st.integers(1, 17))
def test_restricted_attention_is_the_masked_definition(n: int, r: int) -> None:
    x = drawn(2, n, 3)
    reach = max(1, r // 2)
    places = torch.arange(n)
    mask = ((places[:, None] - places).abs() <= reach)[None, None]
    expected = attention(x[:, None], x[:, None], x[:, None], mask)[0][:, 0]
    found = RestrictedSelfAttention(r)(x)
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(expected)
    gradients = [torch.autograd.grad((y * weight).sum(), x)[0] for y in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_unrestricted_if_the_neighbourhood_is_everything() -> None:
    x = drawn(2, 7, 5)
    torch.testing.assert_close(RestrictedSelfAttention(14)(x), SelfAttention()(x))


@pytest.mark.parametrize(("k", "dilation"), [(3, 1), (2, 5), (5, 2)])
def test_a_convolution_sees_what_came_before(k: int, dilation: int) -> None:
    x, layer = drawn(2, 11, 3), Convolutional(3, k, dilation).double()
    weight, bias = layer.kernel.weight, layer.kernel.bias
    expected = torch.stack(
        [
            sum(
                (x[:, t - (k - 1 - i) * dilation] @ weight[:, :, i].T for i in range(k)
                 if t - (k - 1 - i) * dilation >= 0),
                start=bias.expand(2, 3),
            )
            for t in range(11)
        ],
        dim=1,
    )  # fmt: skip
    torch.testing.assert_close(layer(x), expected)


def test_a_separable_convolution_is_one_with_a_matrix_of_rank_one() -> None:
    """Its kernel for channels c to e and place i is W[e, c] w[c, i]."""
    x, layer = drawn(2, 9, 4), Convolutional(4, 3, separable=True).double()
    w, mixed = layer.kernel.weight[:, 0], layer.mixed
    whole = torch.einsum("ec,ci->eci", mixed.weight, w)
    bias = mixed.weight @ layer.kernel.bias + mixed.bias
    expected = F.conv1d(F.pad(x.transpose(1, 2), (2, 0)), whole, bias).transpose(1, 2)
    torch.testing.assert_close(layer(x), expected)


def test_as_many_steps_as_positions_are_the_recurrent_layer() -> None:
    layer = Recurrent(3).double()
    for name, parameter in layer.cells.named_parameters():
        if "bias" in name:
            torch.nn.init.zeros_(parameter)
    x, step = drawn(2, 6, 3), OneStep(layer)
    states = torch.zeros_like(x)
    for _ in range(6):
        states = step(x, states)
    torch.testing.assert_close(states, layer(x))


@pytest.mark.parametrize("name", LAYERS)
def test_shapes_stay(name: str) -> None:
    x = torch.randn(2, 13, 4)
    assert LAYERS[name](Sizes(13, 4, 3, 4))(x).shape == x.shape
