"""Path lengths that gradients find are those of the definitions, and of Table 1's orders."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.complexity import Sizes
from regard.reproduce.layers import LAYERS
from regard.reproduce.path import expected_path, longest_chain, path_length


@pytest.mark.parametrize("layer", LAYERS)
@settings(max_examples=12, deadline=None)
@given(n=st.integers(2, 40), k=st.integers(2, 5), r=st.integers(1, 12))
def test_gradients_reach_as_far_as_the_definition_says(layer: str, n: int, k: int, r: int) -> None:
    sizes = Sizes(n, 2, k, r)
    assert path_length(layer, sizes) == expected_path(layer, sizes)


def test_the_orders_of_table_1() -> None:
    sizes = Sizes(81, 2, 3, 8)
    found = {layer: path_length(layer, sizes) for layer in LAYERS}
    assert found == {
        "self-attention": 1,
        "with projections": 1,
        "restricted": 20,  # 2 n / r
        "recurrent": 81,  # n
        "convolutional": 40,  # n / (k - 1)
        "dilated": 4,  # log_3(81)
        "separable": 40,
    }


def test_only_recurrent_steps_wait_for_each_other() -> None:
    short, long = Sizes(8, 4, 3, 4), Sizes(24, 4, 3, 4)
    longer = {layer: longest_chain(layer, long) - longest_chain(layer, short) for layer in LAYERS}
    assert longer.pop("recurrent") >= 2 * 16  # a product and a tanh for each position
    assert set(longer.values()) == {0}
