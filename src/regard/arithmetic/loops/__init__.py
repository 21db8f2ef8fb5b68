"""Loops, compiled by Numba, that do in one pass over a tensor what PyTorch does in several.

Loops work on NumPy arrays, mostly row by row, on one core, and release Python's lock. NumPy has no
bf16: a loop takes the 16 bits of each number. Importing a module compiles its loops the first time
on a machine, in about a second for each loop, and later loads them from a cache. Only
`regard.arithmetic.one_core` calls loops; `numbers` holds what they share.
"""
