"""Where regard, the paper, its authors' code and other code bases differ: as values, and computed.

Each departure is a value with the paper's words, and a function that judges a recipe and what is
known of its run. `docs/deviations.md` is their print: `python -m regard.departures`.
"""
