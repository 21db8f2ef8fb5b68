"""An equation of an arithmetic, held to the definitions in fp64."""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor

from arithmetic.cases import FP32, Case, Layers, NoLayers
from regard.arithmetic.plain import PLAIN

Equation = Callable[..., Tensor]
"""Computes by an arithmetic, with some layers, from some inputs."""


def hold(
    case: Case,
    equation: Equation,
    *inputs: Tensor,
    layers: Layers | NoLayers | None = None,
    exactly: Equation | None = None,
    upstream: Tensor | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Hold an equation, and its gradients if it has any, to what `Plain` computes in fp64.

    In fp64 it is computed by `exactly`, if that is given. `upstream` is the gradient of the output;
    if it is None, it is drawn. Returns the output and the gradients of the inputs.
    """
    layers = (layers or Layers()).to(case.dtype)
    exact = deepcopy(layers).double()
    inputs = tuple(x.detach().to(case.dtype).requires_grad_(case.learns) for x in inputs)
    twice = [x.detach().double().requires_grad_() for x in inputs]
    by = case.make(layers, layers.tokens)
    with torch.set_grad_enabled(case.learns):
        found = equation(by, layers, *inputs)
    right = (exactly or equation)(PLAIN, exact, *twice)
    assert found.dtype in (case.dtype, FP32)
    assert_near(found, right, case.near)
    if not case.learns:
        return found, []
    upstream = torch.randn_like(found) if upstream is None else upstream
    # Where rounding has decided whether ReLU gives 0, gradients have nothing in common.
    upstream = upstream * ((found == 0) == (right == 0))
    gradients = _gradients(found, (*inputs, *_learned(layers)), upstream)
    expected = _gradients(right, (*twice, *_learned(exact)), upstream.double())
    for gradient, due in zip(gradients, expected, strict=True):
        assert gradient.dtype == case.dtype
        assert_near(gradient, due, case.near)
    return found, list(gradients[: len(inputs)])


def _learned(layers: Layers | NoLayers) -> list[Tensor]:
    return [parameter for parameter in layers.parameters() if parameter.requires_grad]


def _gradients(y: Tensor, leaves: tuple[Tensor, ...], upstream: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(y, leaves, upstream, allow_unused=True, materialize_grads=True)


def assert_near(found: Tensor, right: Tensor, near: float) -> None:
    """That the relative error is small; `right` has numbers of the order of 1."""
    assert found.shape == right.shape
    distance = (found.detach().double() - right.detach()).norm()
    assert distance <= near * max(right.norm(), right.numel() ** 0.5)
