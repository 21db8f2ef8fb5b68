"""Each test of the search runs by the definition of the ranking and by each faster one."""

import pytest

from regard.arithmetic.choose import can_use_loops
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.products import Products
from regard.search import Ranker, most_likely

RANKERS: dict[str, Ranker] = {"definition": most_likely, "blocks": Cpu(Products()).most_likely}
if can_use_loops():
    from regard.arithmetic.one_core import OneCore

    RANKERS["loops"] = OneCore(Products()).most_likely


@pytest.fixture(scope="module", params=RANKERS)
def ranker(request: pytest.FixtureRequest) -> Ranker:
    return RANKERS[request.param]
