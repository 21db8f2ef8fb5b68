"""`python -m regard.departures` prints docs/deviations.md."""

import sys

from regard.departures.page import page

sys.stdout.write(page())
