"""Loops, compiled by Numba, that do in one pass over a tensor what PyTorch does in several.

Loops work on NumPy arrays, mostly row by row, on one core, and release Python's lock. NumPy has no
bf16: a loop takes the 16 bits of each number. Importing a module compiles its loops, for about a
second each the first time on a machine; from then on they are loaded from a cache. Only
`regard.arithmetic.one_core` calls them; `numbers` has what all of them are made of.
"""
