"""A function as one program for a GPU: traced once, fused, perhaps launched as CUDA graphs.

A training step of the base model launches about twelve hundred kernels; fused and captured in
graphs it launches a fifth. The tensors should keep their shapes: for each new shape a program is
compiled, in a minute or so. On a CPU, compiling is not worth its time.
"""

import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def compiled(
    function: Callable[P, R], *, graphs: bool = False, backend: str = "inductor"
) -> Callable[P, R]:
    """A version of `function` that is compiled when it is first called.

    With `graphs` its kernels are captured in CUDA graphs, and tensors that it returns are
    overwritten by the next call. Compiling it, or its backward pass, may fail with any exception,
    for example if there is no C compiler.
    """
    # Inductor's advice is for those who write programs, not for those who run them.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\._inductor")
    mode = "reduce-overhead" if graphs and backend == "inductor" else None
    return torch.compile(function, dynamic=False, fullgraph=True, backend=backend, mode=mode)
