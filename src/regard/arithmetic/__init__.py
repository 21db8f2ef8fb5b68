"""Implementations of `regard.equations.Arithmetic`, the paper's equations.

`plain` computes by the definitions, `cuda` on a GPU, `cpu` in training on a CPU, `inference` on a
CPU without gradients, and `one_core` by compiled loops (`loops`), for a thread with a core to
itself. `fused` has what `cuda` and `cpu` share. `products`, `int8` and `layouts` compute the matrix
products of linear layers. `choose` selects an implementation; tests compare the values of each
one, and its gradients if it has any, with those of `plain`.
"""
