"""The options with which a function is compiled for a GPU, and programs that are forgotten."""

from typing import Any

import pytest
import torch
from torch._inductor import list_options

from regard.machine import compiled


def test_the_options_are_those_of_this_pytorch() -> None:
    known = {name: value for name, value in compiled.OPTIONS.items() if name in list_options()}
    assert compiled._options(graphs=True) == {"triton.cudagraphs": True, **known}
    if torch.__version__ >= "2.11":
        assert known == compiled.OPTIONS


def test_an_older_pytorch_is_not_given_options_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch._inductor.list_options", lambda: ["triton.cudagraphs"])
    assert compiled._options(graphs=False) == {"triton.cudagraphs": False}


def test_a_forgotten_program_is_compiled_again() -> None:
    compilations = 0

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        nonlocal compilations
        compilations += 1
        return graph.forward

    program = torch.compile(lambda x: 2 * x, backend=backend, dynamic=False)
    for expected in (1, 2):
        for _ in range(2):
            assert program(torch.ones(3)).sum() == 6
            assert compilations == expected
        compiled.forget_programs(torch.device("cpu"))
