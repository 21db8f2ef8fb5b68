"""Loops, compiled by Numba, that do in one pass over a tensor what PyTorch does in several.

Loops work on NumPy arrays, mostly row by row, on one core, and release Python's lock. NumPy has no
bf16: a loop takes the 16 bits of each number. The first import of a module on a machine compiles
its loops, in about a second for each loop; later imports load them from a cache. In
`regard.arithmetic`, only `one_core` and `few_rows` call loops; `numbers` has the functions that
loops share.
"""
