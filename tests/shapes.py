"""The shapes in signatures, which `conftest.py` has checked at each call of a test."""

import ast
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import jaxtyping
from beartype.door import die_if_unbearable

SOURCE = Path(__file__).parents[1] / "src"
SHAPED = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if "from jaxtyping import" in path.read_text("utf-8")
}
"""The modules whose signatures give shapes."""
MISSING = object()
"""An argument that a call leaves out."""


def check_shapes() -> None:
    """Have the functions of these modules check their shapes; call it before they are imported.

    The hook is given the exact names: by default it takes all modules of a package, and Numba
    cannot compile a function that is wrapped. It is given a decorator, too: jaxtyping's own binds
    the arguments of each call and looks at each of them twice, which doubles what checks cost.
    """
    hook = jaxtyping.install_import_hook([], "shapes.checked").hook
    hook.should_instrument = SHAPED.__contains__
    hook._typechecker.hash = "shapes"  # in the names of the files with the decorated bytecode
    hook._typechecker.get_ast = lambda: ast.parse("__import__('shapes').checked").body[0].value


def checked(thing: Any) -> Any:
    """`thing`, a function or a class; a call of the function or the dataclass then checks shapes.

    Types without shapes are mypy's work. Whether a call passes depends on the shapes of its
    arguments and its result alone, so those that have passed once are not checked again: to check
    them took a third of the time of a search.
    """
    if inspect.isclass(thing):
        if dataclasses.is_dataclass(thing) and "__init__" in vars(thing):
            thing.__init__ = checked(thing.__init__)
        return thing
    hints = shapes_of(thing)
    if not hints:
        return thing
    assert not inspect.isgeneratorfunction(thing), f"{thing}: it would be checked when it runs"
    names = [name for name in inspect.signature(thing).parameters if name in hints]
    places = list(map(list(inspect.signature(thing).parameters).index, names))
    check = _Check(thing.__qualname__, [*names, "return"], hints)

    @functools.wraps(thing)
    def within_its_own_names(*arguments: Any, **named: Any) -> Any:
        given = tuple(
            arguments[place] if place < len(arguments) else named.get(name, MISSING)
            for place, name in zip(places, names, strict=True)
        )
        check(given)
        result = thing(*arguments, **named)
        if "return" in hints:
            check((*given, result))
        return result

    return within_its_own_names


class _Check:
    """Refuses values that have not the shapes of their hints, and remembers what has passed."""

    def __init__(self, function: str, names: list[str], hints: dict[str, Any]):
        self._places = [f"In {function}, {name}: " for name in names]
        self._hints = [hints.get(name) for name in names]
        self._passed: set[tuple[Any, ...]] = set()

    def __call__(self, values: tuple[Any, ...]) -> None:
        """Check the arguments of a call, or these and its result."""
        outlines = tuple(map(outline, values))
        if outlines in self._passed:
            return
        with jaxtyping.jaxtyped("context"):
            for value, hint, place in zip(values, self._hints, self._places, strict=False):
                if value is not MISSING:
                    die_if_unbearable(value, hint, exception_prefix=place)
        self._passed.add(outlines)


def outline(value: Any) -> Any:
    """All that decides whether a value has the shapes of a hint."""
    if isinstance(value, tuple | list):
        return type(value), *map(outline, value)
    if isinstance(value, dict):
        return type(value), *value, *map(outline, value.values())
    dtype = getattr(value, "dtype", None)
    return type(value) if dtype is None else (type(value), value.shape, dtype)


def shapes_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations that have shapes, of those whose names are defined by now."""
    found = {}
    for name, hint in inspect.get_annotations(function).items():
        if isinstance(hint, str):
            try:
                hint = eval(hint, function.__globals__)
            except NameError:
                continue
        if has_shape(hint):
            variables = getattr(hint, "__parameters__", ())
            found[name] = hint[(Any,) * len(variables)] if variables else hint
    return found


def has_shape(hint: Any) -> bool:
    if isinstance(hint, str):  # it names a class that is not defined yet
        return re.search(r"\[Tensor, ['\"]", hint) is not None
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(map(has_shape, get_args(hint)))
