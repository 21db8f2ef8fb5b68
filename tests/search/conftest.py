"""Each test of the search runs by the arithmetic of the definitions and by each faster one."""

import pytest

from regard.arithmetic.choose import can_use_loops
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.plain import PLAIN
from regard.arithmetic.products import Products
from regard.equations import Arithmetic

ARITHMETICS: dict[str, Arithmetic] = {"definition": PLAIN, "blocks": Cpu(Products())}
if can_use_loops():
    from regard.arithmetic.one_core import OneCore

    ARITHMETICS["loops"] = OneCore(Products())


@pytest.fixture(scope="module", params=ARITHMETICS)
def by(request: pytest.FixtureRequest) -> Arithmetic:
    return ARITHMETICS[request.param]
