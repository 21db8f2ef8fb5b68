"""Table 1, worked by hand at primes."""

import pytest

from regard.complexity import CONTIGUOUS_PATH, SEPARABLE_COMPLEXITY, TABLE_1, Sizes


def test_table_1_at_primes():
    sizes = Sizes(n=7, d=5, k=3, r=2)
    costs = {
        name: (row.complexity.of(sizes), row.sequential.of(sizes), row.path.of(sizes))
        for name, row in TABLE_1.items()
    }
    assert costs == {
        "Self-Attention": (245, 1, 1),
        "Recurrent": (175, 7, 7),
        "Convolutional": (525, 1, pytest.approx(1.7712437)),
        "Self-Attention (restricted)": (70, 1, 3.5),
    }


def test_section_4_adds_two_costs():
    sizes = Sizes(n=7, d=5, k=3, r=2)
    assert CONTIGUOUS_PATH.of(sizes) == pytest.approx(7 / 3)
    assert SEPARABLE_COMPLEXITY.of(sizes) == 280
