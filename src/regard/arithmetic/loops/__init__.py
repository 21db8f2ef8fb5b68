"""What PyTorch computes in several passes over a tensor in one: loops that Numba compiles.

They work on NumPy arrays, mostly row by row, on one core, and do not hold Python's lock. bf16,
which NumPy lacks, comes as the 16 bits of each number. Importing a module compiles its loops, for a
second or so each the first time on a machine; from then on they are loaded from a cache. Each
module serves the one of its name in `regard.arithmetic`, but `search` the search and `adam` the
optimizer; `numbers` serves them all.
"""
