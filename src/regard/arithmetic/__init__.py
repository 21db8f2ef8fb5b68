"""Implementations of `regard.equations.Arithmetic`, the paper's equations.

`plain` computes each equation by its definition. `cuda` is for a GPU. `cpu` is for training on a
CPU, and `inference` is for computing without gradients on a CPU. `one_core` computes by compiled
loops (`loops`), in a thread that uses one core. `fused` has the code that `cuda` and `cpu` share.
`products`, `int8` and `layouts` compute the matrix products of linear layers. `choose` selects an
implementation. Tests compare the values of each implementation with those of `plain` and, if the
implementation is for training, its gradients, too.
"""
