"""`Kernel` launches a kernel of this package where Triton can compile it."""

import threading
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any

from regard.machine.devices import is_out_of_memory

LAUNCHING = threading.Lock()
"""A thread holds this lock while it launches a kernel for which PyTorch or Triton has settings that
all threads share, and while Triton compiles a kernel."""


class Kernel:
    """A kernel of this package. It is used until it fails once, for example for lack of a compiler.

    The kernel `name` is launched by the function `name`_kernel of the module `name`.
    """

    def __init__(self, name: str):
        self._name = name

    def __call__(self, *args: Any) -> Any:
        """The result of the kernel, or None if it cannot be used here."""
        try:
            with LAUNCHING:
                return self.run(*args) if self.run else None
        except Exception as error:  # compiling may raise any exception
            if is_out_of_memory(error):
                raise
            self.run = None
        return None

    @cached_property
    def run(self) -> Callable[..., Any] | None:
        """The function that launches the kernel; None if there is no Triton that works here."""
        try:
            module = import_module(f"regard.arithmetic.kernels.{self._name}")
        except Exception:  # importing Triton may raise any exception
            return None
        launch: Callable[..., Any] = getattr(module, f"{self._name}_kernel")
        return launch
