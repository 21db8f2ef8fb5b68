"""The errors that regard raises for its users.

    RegardError            an error that the user can correct; the command line exits with status 2
    ├── RecipeError        an invalid key or value in a recipe or in an option
    ├── DataError          text, trees or prepared data that cannot be used
    ├── ModelError         a model, tokenizer or checkpoint that is missing, damaged or unsuitable
    │   └── Unreadable     a model or checkpoint that cannot be read now, or by this version
    ├── TrainingError      training that cannot begin or continue
    │   ├── InUse          a run that another process trains or prepares data for
    │   └── Diverged       training in which the loss or a weight is NaN or infinite
    └── MissingExtra       an optional dependency that is not installed

A message is one sentence. As far as they apply, it tells the place (file and line), the problem,
the limit that was exceeded, and the remedy.
"""

from collections.abc import Callable
from pathlib import Path


class RegardError(Exception):
    """Base class of the errors that a user can correct; `str(error)` is the message to show."""


def printable(sentence: str) -> str:
    """The sentence on one line; characters that are not printable are escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in sentence.replace("\n", " "))


class RecipeError(RegardError):
    """A recipe or an option has an unknown key or an invalid value."""


def unknown(
    what: str,
    name: str,
    names: list[str],
    part: Callable[[str], str] = str,
    where: str = "",
) -> RecipeError:
    """A RecipeError whose message suggests, for an unknown `name`, the most similar of `names`.

    In the message, `what` says what kind of name is unknown. `part` returns the part of a name that
    is compared. If none of `names` is similar, the message lists the first twenty names. If there
    are more, the message also names `where`, the command that shows all; "" means no command.
    """
    from difflib import get_close_matches

    name = name if len(str(name)) < 80 else f"{str(name)[:80]}..."
    parts = {part(known): known for known in names}
    near = [parts[one] for one in get_close_matches(part(str(name)), parts, n=1)]
    listed = ", ".join(names[:20])
    if len(names) > 20:
        listed += ", ..." + f": see {where}" * bool(where)
    advice = f"did you mean {near[0]}?" if near else f"it is one of {listed}"
    return RecipeError(f"unknown {what} {name}: {advice}")


class DataError(RegardError):
    """Text, trees or prepared data cannot be used, for example because a file is missing or empty.

    The message may name the file and the line, or the number of the sentence, counted from 1.
    """

    def __init__(self, problem: str, path: str | Path | None = None, line: int | None = None):
        place = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(place + problem)


class ModelError(RegardError):
    """A model, tokenizer or checkpoint is missing, damaged, or does not suit its use."""


class Unreadable(ModelError):
    """A model or checkpoint may be undamaged but cannot be read now, or by this version."""


class TrainingError(RegardError):
    """Training cannot begin, or cannot continue."""


class InUse(TrainingError):
    """Another process trains in the directory of a run, or prepares the run's data."""


class Diverged(TrainingError):
    """Training has diverged: the loss, or a weight, is NaN or infinite."""


class MissingExtra(RegardError):
    """A feature needs a package that is not installed; the message tells how to install it."""

    def __init__(self, feature: str, extra: str):
        super().__init__(f"{feature} needs an extra: pip install 'regard[{extra}]'")
        self._made_of = feature, extra

    def __reduce__(self) -> tuple["type[MissingExtra]", tuple[str, str]]:
        """Tell pickle how to make the error again: by calling the class with `_made_of`.

        Without this method, pickle could not send the error to another process.
        """
        return type(self), self._made_of
