"""Implementations of `regard.equations.Arithmetic`, the paper's equations.

`plain` computes each equation by its definition. `cuda` is for a GPU, `cpu` for training on a CPU,
and `inference` for a CPU without gradients. `one_core` computes by compiled loops (`loops`), in a
thread that uses one core. `fused` has the code that `cuda` and `cpu` share. `products`, `int8` and
`layouts` compute the matrix products of linear layers. `choose` selects an implementation. Tests
compare the values of each implementation with those of `plain`. If an implementation is for
training, they also compare the gradients.
"""
