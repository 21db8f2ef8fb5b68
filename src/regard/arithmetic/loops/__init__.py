"""Loops, compiled by Numba, that do in one pass over a tensor what PyTorch does in several.

Loops work on NumPy arrays, mostly row by row, on one core, and release Python's global interpreter
lock. NumPy has no bf16, so a loop takes each bf16 number as an integer of 16 bits. The first import
of a module on a machine compiles the loops of the module, in about a second for each loop; later
imports load them from a cache. Loops decorated by `loop_for_weights` are instead compiled when they
are first used. In `regard.arithmetic`, only `one_core` and `few_rows` call loops. `numbers` and
`vectors` have the functions that loops share; `folder` says where compiled loops are kept.
"""
