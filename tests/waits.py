"""Finds where a GPU would be waited for, on a CPU: what reads a number or copies one to the device.

On a CPU nothing waits, so the operations are counted that would. Copies between devices are not
operations here; `Tensor.cpu`, `.to` and others like them are noticed when they are called.
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import regard

SOURCE, TORCH = Path(regard.__file__).parent, Path(torch.__file__).parent
aten = torch.ops.aten
WAITING_OPERATIONS = {
    aten.lift_fresh: "a tensor of Python's numbers is copied to the device",
    aten._local_scalar_dense: "a number is read",
    aten.item: "a number is read",
    aten.equal: "two tensors are compared",
    aten.is_nonzero: "a number is read",
    aten.nonzero: "a size is read",
    aten.masked_select: "a size is read",
    aten._unique2: "a size is read",
    aten.unique_dim: "a size is read",
}


class Waits:
    """Within the block, counts waits for the device by the line of regard that causes them."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self._operations, self._calls = _Operations(self._wait), _Calls(self._wait)

    def __enter__(self) -> Self:
        self._calls.__enter__()
        self._operations.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._operations.__exit__(*error)
        self._calls.__exit__(*error)

    def _wait(self, what: str) -> None:
        frame = sys._getframe(1)
        while frame.f_back and not frame.f_code.co_filename.startswith(str(SOURCE)):
            frame = frame.f_back
        path, function = Path(frame.f_code.co_filename), frame.f_code.co_name
        name = path.relative_to(SOURCE) if path.is_relative_to(SOURCE) else path.name
        self.found[f"{name}:{frame.f_lineno} {function}: {what}"] += 1


class _Operations(TorchDispatchMode):
    def __init__(self, wait: Callable[[str], None]):
        super().__init__()
        self._wait = wait

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if what := WAITING_OPERATIONS.get(operation.overloadpacket):
            self._wait(what)
        indexing = operation in (aten.index.Tensor, aten.index_put_.default, aten.index_put.default)
        repeating = operation in (aten.repeat_interleave.Tensor, aten.repeat_interleave.self_Tensor)
        if repeating and not (kwargs or {}).get("output_size"):
            self._wait("a size is read")
        if indexing and any(i is not None and i.dtype == torch.bool for i in args[1]):
            self._wait("a size is read")
        return operation(*args, **(kwargs or {}))


class _Calls(TorchFunctionMode):
    def __init__(self, wait: Callable[[str], None]):
        super().__init__()
        self._wait = wait

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        moves = name == "to" and any(isinstance(a, str | torch.device) for a in args[1:])
        by_torch = sys._getframe(1).f_code.co_filename.startswith(str(TORCH))  # they move nothing
        waits = not (kwargs or {}).get("non_blocking")
        if (name == "cpu" or moves) and waits and not by_torch:
            self._wait("a copy from or to the device")
        return function(*args, **(kwargs or {}))
