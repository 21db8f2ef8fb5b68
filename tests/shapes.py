"""The shapes in signatures, which `conftest.py` has checked at each call of a test."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import jaxtyping
from beartype import beartype

SOURCE = Path(__file__).parents[1] / "src"
SHAPED = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if "from jaxtyping import" in path.read_text("utf-8")
}
"""The modules whose signatures give shapes."""


def check_shapes() -> None:
    """Have the functions of these modules check their shapes; call it before they are imported.

    The hook is given the exact names: by default it takes all modules of a package, and Numba
    cannot compile a function that is wrapped.
    """
    hook = jaxtyping.install_import_hook([], "shapes.checked").hook
    hook.should_instrument = SHAPED.__contains__


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the arguments and the result that have shapes; other types are mypy's work."""
    hints = function.__annotations__
    for name, hint in hints.items():
        variables = getattr(hint, "__parameters__", ())
        if not has_shape(hint):
            hints[name] = Any
        elif variables:
            hints[name] = hint[(Any,) * len(variables)]
    return beartype(function)


def has_shape(hint: Any) -> bool:
    if isinstance(hint, str):  # it names a class that is not defined yet
        return "[Tensor," in hint
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(map(has_shape, get_args(hint)))
