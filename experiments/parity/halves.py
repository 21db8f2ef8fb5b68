"""The `regard` command that learns from every batch by halves, as it does of itself where a step is
much work; the model here is too small for that. It takes an even number of cores.
"""

import regard.train
from regard.cli.main import main

if __name__ == "__main__":
    regard.train.MUCH = 0
    main()
