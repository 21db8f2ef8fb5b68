"""Layers of 8 bits for inference: as near as rounding allows, and exact in their sums."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from arithmetic.cases import INT8, NUMBA, inference, skip_without
from regard.arithmetic.layouts import Int8Linear, largest_weight
from regard.arithmetic.products import Products
from regard.equations import Arithmetic

seeds, sizes = st.integers(0, 2**31), st.integers(1, 67)


@pytest.fixture(scope="module", params=[False, True], ids=["operations", "loops"])
def by(request: pytest.FixtureRequest) -> Arithmetic:
    skip_without(INT8, *[NUMBA] * request.param)
    return inference(Products(), request.param)


def problem(seed: int, inputs: int, outputs: int, *batch: int) -> tuple[torch.Tensor, nn.Linear]:
    torch.manual_seed(seed)
    return torch.randn(*batch, inputs), nn.Linear(inputs, outputs).requires_grad_(False)


@settings(deadline=None, max_examples=30)
@given(seeds, sizes, sizes, st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_8_bits_differ_by_no_more_than_their_rounding(
    by: Arithmetic, seed: int, inputs: int, outputs: int, batch: list[int]
) -> None:
    x, layer = problem(seed, inputs, outputs, *batch)
    expected, found = layer(x), Int8Linear(layer.weight, layer.bias)(by, x)
    # Half a step of each factor, times the other factor, for each product of the sum.
    step_x = x.abs().amax(-1, keepdim=True) / 127
    step_w = layer.weight.abs().amax(1) / largest_weight()
    bound = x.abs().sum(-1, keepdim=True) * step_w / 2
    bound = bound + layer.weight.abs().sum(1) * step_x / 2 + inputs * step_x * step_w / 4
    assert ((found - expected).abs() <= bound * 1.001 + 1e-5).all()


def test_8_bits_of_a_row_do_not_depend_on_the_other_rows(by: Arithmetic) -> None:
    x, layer = problem(1, 37, 29, 11)
    x[3] *= 1000  # its scale is its own
    x[5] = 0
    linear = Int8Linear(layer.weight, layer.bias)
    together = linear(by, x)
    assert torch.equal(together, torch.cat([linear(by, row[None]) for row in x]))
    assert torch.equal(together[5], layer.bias)


@settings(deadline=None, max_examples=30)
@given(seeds, st.integers(1, 1000), sizes, st.sampled_from([1.0, -1.0]))
def test_sums_of_8_bits_are_exact_where_they_are_largest(
    by: Arithmetic, seed: int, inputs: int, outputs: int, sign: float
) -> None:
    """Each product is as large as can be; most of them have one sign."""
    torch.manual_seed(seed)
    x, weight = torch.ones(3, inputs), torch.full((outputs, inputs), sign)
    weight[torch.rand(outputs, inputs) < 0.1] *= -1
    found = Int8Linear(weight)(by, x)
    torch.testing.assert_close(found, F.linear(x, weight), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("instructions", ["AVX2", "SSE41"])
def test_with_older_instructions_weights_have_7_bits(instructions: str) -> None:
    skip_without(INT8)
    # oneDNN reads the variable once, in a process of its own.
    code = (
        "import torch; from regard.arithmetic.layouts import Int8Linear, largest_weight as w;"
        "from regard.arithmetic.inference import Inference, Products; ones = torch.ones(2, 128);"
        "print(w(), *Int8Linear(ones)(Inference(Products()), ones).unique().tolist())"
    )
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": instructions}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "64 128.0\n", done.stderr
