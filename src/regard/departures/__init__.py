"""The differences between regard, the paper, its authors' code and other code bases.

Each `Departure` has the paper's words, and a function that judges a recipe and the known facts of
its run. `python -m regard.departures` prints all departures, as in `docs/deviations.md`.
"""
