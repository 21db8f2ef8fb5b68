"""§4 Why self-attention: Table 1, which shows how the costs of a layer grow with the sizes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log


@dataclass(frozen=True, slots=True)
class Sizes:
    """The four sizes in Table 1."""

    n: int
    """Sequence length."""
    d: int
    """Dimension of the representation."""
    k: int
    """Kernel width of a convolution."""
    r: int
    """Size of the neighbourhood that restricted self-attention sees."""


@dataclass(frozen=True, slots=True)
class Order:
    """How a cost grows with the sizes, up to a constant factor: O(expression)."""

    expression: str
    """The expression as it is printed."""
    of: Callable[[Sizes], float]
    """The value of the expression for given sizes."""


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """A row of Table 1."""

    complexity: Order
    """The number of operations in one layer."""
    sequential: Order
    """The number of operations that must run one after another."""
    path: Order
    """The maximum path length: the length of the longest path of a signal between two positions."""


_CONSTANT = Order("1", lambda s: 1)
_LENGTH = Order("n", lambda s: s.n)

TABLE_1: Mapping[str, LayerCosts] = {
    "Self-Attention": LayerCosts(Order("n^2 d", lambda s: s.n**2 * s.d), _CONSTANT, _CONSTANT),
    "Recurrent": LayerCosts(Order("n d^2", lambda s: s.n * s.d**2), _LENGTH, _LENGTH),
    "Convolutional": LayerCosts(
        Order("k n d^2", lambda s: s.k * s.n * s.d**2),
        _CONSTANT,
        Order("log_k(n)", lambda s: log(s.n) / log(s.k)),
    ),
    "Self-Attention (restricted)": LayerCosts(
        Order("r n d", lambda s: s.r * s.n * s.d),
        _CONSTANT,
        Order("n/r", lambda s: s.n / s.r),
    ),
}
"""Table 1, by the type of layer. The path of the convolutional layer is for dilated kernels."""

CONTIGUOUS_PATH = Order("n/k", lambda s: s.n / s.k)
"""§4: the number of layers that convolutions with contiguous kernels need to connect all positions;
the longest path has this length."""

SEPARABLE_COMPLEXITY = Order("k n d + n d^2", lambda s: s.k * s.n * s.d + s.n * s.d**2)
"""§4: the number of operations in one layer of separable convolutions."""
