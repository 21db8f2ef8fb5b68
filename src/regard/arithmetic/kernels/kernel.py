"""`Kernel` launches a kernel of this package where Triton can compile it."""

import logging
import threading
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any

from regard.machine.devices import is_out_of_memory

_log = logging.getLogger("regard.kernels")
LAUNCHING = threading.Lock()
"""A thread holds this lock while it launches a `Kernel`, which Triton may compile first. In
inference, a thread also holds the lock while it uses `sdpa_kernel`, which affects all threads."""


class Kernel:
    """A kernel of this package. The function `name`_kernel of the module `name` launches it.

    A kernel is used until it fails once, for example for lack of a compiler. Then a warning is
    logged, but only for the first of all kernels that fail. If a kernel fails for lack of memory,
    the error is raised instead, and the kernel stays in use.
    """

    _warned = False
    """Whether a failure was logged. Later failures, often for the same reason, are not logged."""

    def __init__(self, name: str):
        self._name = name

    def __call__(self, *args: Any) -> Any:
        """The result of the kernel, or None if the kernel cannot be used on this machine."""
        try:
            with LAUNCHING:
                return self.run(*args) if self.run else None
        except Exception as error:  # compiling may raise any exception
            if is_out_of_memory(error):
                raise
            self.run = None
            self._warn(error)
        return None

    @cached_property
    def run(self) -> Callable[..., Any] | None:
        """The function that launches the kernel; None if Triton is missing or the kernel failed."""
        try:
            module = import_module(f"regard.arithmetic.kernels.{self._name}")
        except Exception:  # importing Triton may raise any exception
            return None
        launch: Callable[..., Any] = getattr(module, f"{self._name}_kernel")
        return launch

    def _warn(self, error: Exception) -> None:
        if not Kernel._warned:
            Kernel._warned = True
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            _log.warning(
                "the GPU is slower: it cannot use the kernel %s: %.200s", self._name, reason
            )
