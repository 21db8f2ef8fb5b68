"""Compile a function for a GPU: fuse its operations and, if wanted, capture them in CUDA graphs.

A training step of the base model launches about 1,200 kernels. If the step is fused and captured in
graphs, it launches two graphs and 18 kernels. The tensors should keep their shapes: for each new
shape, a program is compiled, which takes about a minute. On a CPU, compiling takes more time than
it saves.
"""

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from regard.machine.devices import GRAPHS, free_memory

OPTIONS = {"triton.mix_order_reduction": False}
"""Options of the compiler; an option that the installed PyTorch lacks is left out. The gradient
of layer normalisation needs sums along each row and sums along each column. By default, the
compiler makes a single kernel for both. On an H200, this kernel takes twice as long as the two
separate kernels that the compiler makes with this option."""
P = ParamSpec("P")
R = TypeVar("R")


def compiled(
    function: Callable[P, R], *, graphs: bool = False, backend: str = "inductor"
) -> Callable[P, R]:
    """A version of `function` that is compiled when it is first called.

    With `graphs`, the kernels are captured in CUDA graphs, and the tensors that a call returns are
    overwritten by the next call. `backend` is the compiler's name in torch.compile; only "inductor"
    uses `graphs`. Compiling the function, or its backward pass, may fail with any exception, for
    example if there is no C compiler.
    """
    # Hide Inductor's warnings: they advise programmers, not the users of a program.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\._inductor")
    options = _options(graphs) if backend == "inductor" else None
    return torch.compile(function, dynamic=False, fullgraph=True, backend=backend, options=options)


def forget_programs(device: torch.device) -> None:
    """Discard all compiled programs of this process, and release the memory of their CUDA graphs.

    Call this before a new model is compiled: PyTorch compiles one function for at most eight models
    or shapes, and also counts models that no longer exist. A discarded program that is called again
    is compiled again.
    """
    if "torch._dynamo" in sys.modules:  # otherwise, nothing has been compiled
        with GRAPHS:
            torch.compiler.reset()
    free_memory(device)


def is_turned_off() -> bool:
    """Whether TORCH_COMPILE_DISABLE=1 is set: functions from `compiled` then run uncompiled."""
    return os.environ.get("TORCH_COMPILE_DISABLE") == "1"


def _options(graphs: bool) -> dict[str, Any]:
    from torch._inductor import list_options  # this import is slow

    known = set(list_options())
    return {"triton.cudagraphs": graphs} | {k: v for k, v in OPTIONS.items() if k in known}
