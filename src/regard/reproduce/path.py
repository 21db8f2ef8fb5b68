"""§4: the path length of a layer, and its longest chain of operations, both found by autograd."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from regard.complexity import Sizes
from regard.reproduce.layers import LAYERS, Convolutional, OneStep, Recurrent

_NARROW = 2
"""The width d of the layers that are stacked to measure a path length."""


def path_length(layer: str, sizes: Sizes) -> int:
    """The fewest layers after which the last position depends on every position.

    The layers are stacked one by one. All weights are positive, so that paths never cancel each
    other in a gradient. For the recurrent layer, steps are counted in place of layers.
    """
    x = torch.full((1, sizes.n, _NARROW), 0.01, dtype=torch.float64, requires_grad=True)
    small = Sizes(sizes.n, _NARROW, sizes.k, sizes.r)
    states = x
    for count in range(1, sizes.n + 1):
        states = _one_more(layer, small, count, x, states)
        [gradient] = torch.autograd.grad(states[:, -1].sum(), x, retain_graph=True)
        if bool((gradient != 0).any(-1).all()):
            return count
    raise AssertionError(f"{layer}: {sizes.n} layers do not join all positions")


def _one_more(layer: str, sizes: Sizes, count: int, x: Tensor, states: Tensor) -> Tensor:
    if layer == "recurrent":
        recurrent = Recurrent(sizes.d)
        _positive(recurrent)
        return OneStep(recurrent)(x, states if count > 1 else torch.zeros_like(states))
    if layer == "dilated":
        # With dilations 1, k, k^2, ..., a kernel reads k states, which depend on k adjacent ranges
        # of positions. So with each layer, a state depends on k times as many positions.
        return _positive(Convolutional(sizes.d, sizes.k, sizes.k ** (count - 1)))(states)
    return _positive(LAYERS[layer](sizes))(states)


def _positive(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in module.double().parameters():
            inputs = parameter[0].numel() if parameter.dim() > 1 else 1
            parameter.fill_(1 / inputs if parameter.dim() > 1 else 0.0)
    return module


def expected_path(layer: str, sizes: Sizes) -> int:
    """The path length that a layer has by its definition.

    The paper prints the order of growth of this length, in Table 1 or in §4.
    """
    n, k = sizes.n, sizes.k
    if layer in ("self-attention", "with projections"):
        return 1
    if layer == "recurrent":
        return n
    if layer == "dilated":
        return next(count for count in range(1, n + 1) if k**count >= n)
    reach = max(1, sizes.r // 2) if layer == "restricted" else k - 1
    return max(1, math.ceil((n - 1) / reach))


def longest_chain(layer: str, sizes: Sizes) -> int:
    """The length of a layer's longest chain of operations, each of which needs the one before.

    The operations that PyTorch records for the gradient are counted, whatever their size. Two
    more operations count: reading the input, and the sum of the output.
    """
    x = torch.zeros(1, sizes.n, sizes.d, requires_grad=True)
    last = LAYERS[layer](sizes)(x).sum().grad_fn
    depth: dict[Any, int] = {}
    stack: list[tuple[Any, bool]] = [(last, False)]
    while stack:
        node, known = stack.pop()
        before = [one for one, _ in node.next_functions if one is not None]
        if known:
            depth[node] = 1 + max((depth[one] for one in before), default=0)
        elif node not in depth:
            stack.append((node, True))
            stack += [(one, False) for one in before]
    return depth[last]
