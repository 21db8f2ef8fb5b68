"""Packed layers equal the plain one; in 8 bits, as near as rounding allows."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.arithmetic import packed
from regard.arithmetic.packed import (
    Int8Linear,
    PackedLinear,
    can_pack,
    largest_weight,
    refuse_int8,
)
from regard.errors import RecipeError

pytestmark = [
    pytest.mark.usefixtures("plain_or_loops"),
    pytest.mark.skipif(not can_pack(torch.float32), reason="oneDNN is not there"),
]
sizes = st.integers(1, 67)


def problem(seed: int, inputs: int, outputs: int, *batch: int) -> tuple[torch.Tensor, nn.Linear]:
    torch.manual_seed(seed)
    return torch.randn(*batch, inputs), nn.Linear(inputs, outputs)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31), sizes, sizes, st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_a_packed_layer_is_the_layer(seed: int, inputs: int, outputs: int, batch: list) -> None:
    x, layer = problem(seed, inputs, outputs, *batch)
    with torch.no_grad():
        for bias in (layer.bias, None):
            expected = F.linear(x, layer.weight, bias)
            packed = PackedLinear(layer.weight, bias)(x)
            torch.testing.assert_close(packed, expected, atol=1e-5, rtol=1e-5)
            if can_pack(torch.bfloat16):
                half = PackedLinear(
                    layer.weight.bfloat16(), None if bias is None else bias.bfloat16()
                )
                near = half(x.bfloat16()).float()
                torch.testing.assert_close(near, expected, atol=0.05, rtol=0.05)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31), sizes, sizes, st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_8_bits_differ_by_no_more_than_their_rounding(
    seed: int, inputs: int, outputs: int, batch: list
) -> None:
    x, layer = problem(seed, inputs, outputs, *batch)
    with torch.no_grad():
        expected, found = layer(x), Int8Linear(layer.weight, layer.bias)(x)
        # Half a step of each factor, times the other factor, for each product of the sum.
        step_x = x.abs().amax(-1, keepdim=True) / 127
        step_w = layer.weight.abs().amax(1) / largest_weight()
        bound = x.abs().sum(-1, keepdim=True) * step_w / 2
        bound = bound + layer.weight.abs().sum(1) * step_x / 2 + inputs * step_x * step_w / 4
    assert ((found - expected).abs() <= bound * 1.001 + 1e-5).all()


def test_8_bits_of_a_row_do_not_depend_on_the_other_rows() -> None:
    x, layer = problem(1, 37, 29, 11)
    x[3] *= 1000  # its scale is its own
    x[5] = 0
    linear = Int8Linear(layer.weight, layer.bias)
    with torch.no_grad():
        together = linear(x)
        alone = torch.cat([linear(row[None]) for row in x])
    assert torch.equal(together, alone)
    assert torch.equal(together[5], layer.bias)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31), st.integers(1, 1000), sizes, st.sampled_from([1.0, -1.0]))
def test_sums_of_8_bits_are_exact_where_they_are_largest(
    seed: int, inputs: int, outputs: int, sign: float
) -> None:
    """Each product is as large as there is; all but a few have one sign."""
    torch.manual_seed(seed)
    x, weight = torch.ones(3, inputs), torch.full((outputs, inputs), sign)
    weight[torch.rand(outputs, inputs) < 0.1] *= -1
    found = Int8Linear(weight)(x)
    torch.testing.assert_close(found, F.linear(x, weight), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("layer", [PackedLinear, Int8Linear])
def test_the_positive_part_keeps_what_is_no_number(layer: type[nn.Module]) -> None:
    torch.manual_seed(1)
    weight, bias = torch.randn(16, 32), torch.randn(16)
    bias[3] = torch.nan
    x = torch.randn(5, 32)
    found, plain = layer(weight, bias)(x, relu=True), layer(weight, bias)(x)
    torch.testing.assert_close(found, plain.relu(), equal_nan=True)
    assert found[:, 3].isnan().all()


def test_without_products_of_8_bits_they_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_int8(torch.device("cpu"))
    with pytest.raises(RecipeError, match="there is no int8 on this device: use bf16 or fp32"):
        refuse_int8(torch.device("cuda"))

    def overflowing(*_: object) -> torch.Tensor:
        return torch.full((16, 16), 63.0)

    monkeypatch.setattr(Int8Linear, "forward", overflowing)
    # without what is remembered, nor leaving it
    monkeypatch.setattr(packed, "largest_weight", largest_weight.__wrapped__)
    with pytest.raises(RecipeError, match="there is no int8 on this device: use bf16 or fp32"):
        refuse_int8(torch.device("cpu"))


@pytest.mark.parametrize("instructions", ["AVX2", "SSE41"])
def test_with_older_instructions_weights_have_7_bits(instructions: str) -> None:
    # oneDNN reads the variable once, in a process of its own.
    code = (
        "import torch; from regard.arithmetic.packed import Int8Linear, largest_weight as w; "
        "ones = torch.ones(2, 128); print(w(), *Int8Linear(ones)(ones).unique().tolist())"
    )
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": instructions}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "64 128.0\n", done.stderr
