"""The `regard` command that learns from every batch by halves and updates the weights in one loop,
as it does of itself where that is much work: the model here is too small. It takes two cores.
WITHOUT_LOOPS=1 in the environment does without `regard.arithmetic.loops`.
"""

import os
import sys

if os.environ.get("WITHOUT_LOOPS"):
    sys.modules["numba"] = None  # type: ignore[assignment]

import regard.optimizer
import regard.training
from regard.cli.main import main

if __name__ == "__main__":
    regard.training.MUCH = 0
    regard.optimizer.MANY = 0
    main()
