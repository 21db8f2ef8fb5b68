"""A function as one program for a GPU: traced once, fused, and launched as CUDA graphs.

A training step of the base model launches about fifteen hundred kernels; one by one, the launches
take about as long as the kernels. The tensors should keep their shapes: for each new shape a
program is compiled, in a minute or so. On a CPU, compiling is not worth its time.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def compiled(
    function: Callable[P, R], warn: Callable[[str], None], backend: str = "inductor"
) -> Callable[P, R]:
    """A version of `function` that is compiled when it is first called.

    Tensors that it returns are overwritten by the next call. If compiling fails, for example since
    there is no C compiler, `warn` is called with the reason, and `function` itself runs instead.
    """
    from torch._dynamo.exc import TorchDynamoException  # slow to load: a second

    mode = "reduce-overhead" if backend == "inductor" else None  # this mode uses CUDA graphs
    fast = torch.compile(function, dynamic=False, fullgraph=True, backend=backend, mode=mode)

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal fast
        try:
            return fast(*args, **kwargs)
        except TorchDynamoException as error:
            if fast is function:
                raise
            reason = str(error).strip().split("\n")[0]
            warn(f"the step is not compiled, and so is slower: {reason}")
            fast = function
            return fast(*args, **kwargs)

    return call
