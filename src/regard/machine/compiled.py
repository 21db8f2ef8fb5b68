"""A function as one program for a GPU: traced once, fused, and launched as CUDA graphs.

A step of base is some fifteen hundred kernels; to launch them one by one takes about as long as to
run them. Compiling is for functions whose tensors keep their shapes: for every other shape the
program is made anew, which takes a minute or so. On a CPU it does not pay.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def compiled(
    function: Callable[P, R], warn: Callable[[str], None], backend: str = "inductor"
) -> Callable[P, R]:
    """`function`, compiled at its first call.

    Tensors that it returns are overwritten by the next call. Where it cannot be compiled (that
    takes a C compiler, beside PyTorch), `warn` hears why, and it goes on as it is.
    """
    from torch._dynamo.exc import TorchDynamoException  # takes a second, which others need not wait

    mode = "reduce-overhead" if backend == "inductor" else None  # that is, with CUDA graphs
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
