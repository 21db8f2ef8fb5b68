"""regard: "Attention Is All You Need" as working software.

>>> import regard
>>> model = regard.load("runs/demo")                     # doctest: +SKIP
>>> model.translate(["The dog sleeps because it is tired."])   # doctest: +SKIP
['Der Hund schläft, weil er müde ist.']
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.translation import load as load

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    # PyTorch loads in seconds; `import regard` must not wait for it.
    if name == "load":
        from regard.translation import load

        return load
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
