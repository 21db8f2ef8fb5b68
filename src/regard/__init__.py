"""regard: "Attention Is All You Need" as working software.

>>> import regard
>>> regard.train(source="train.en", target="train.de", out="runs/mine")   # doctest: +SKIP
>>> translator = regard.load("runs/mine")                                 # doctest: +SKIP
>>> translator.translate(["The dog sleeps because it is tired."])         # doctest: +SKIP
['Der Hund schläft, weil er müde ist.']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.api import parse as parse
    from regard.api import prepare as prepare
    from regard.api import train as train
    from regard.parsing import load as load_parser
    from regard.translation import load as load

__version__ = "0.1.0"
__all__ = ["__version__", "load", "load_parser", "parse", "prepare", "train"]

_HOMES = {
    "load": ("regard.translation", "load"),
    "load_parser": ("regard.parsing", "load"),
    "parse": ("regard.api", "parse"),
    "prepare": ("regard.api", "prepare"),
    "train": ("regard.api", "train"),
}


def __getattr__(name: str) -> Any:
    """The public function `name`; its module is imported only now, because PyTorch loads slowly.

    Raises AttributeError if `name` is not a public function.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    module, function = _HOMES[name]
    return getattr(import_module(module), function)


def __dir__() -> list[str]:
    """The public names, which tab completion offers."""
    return list(__all__)
