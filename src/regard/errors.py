"""Everything that regard refuses, as one small tree.

    RegardError            what a user can mend; the command line prints it and exits with status 2
    ├── RecipeError        a key or value of a recipe, or of --set
    ├── DataError          a corpus: missing, misaligned, not UTF-8, empty, unreadable
    ├── ModelError         a model directory or checkpoint: missing or damaged
    │   └── Unreadable     whole perhaps, but not to be read here and now, or by this version
    ├── TrainingError      training cannot go on: the loss is no longer finite, nothing fits a batch
    └── MissingExtra       an optional dependency that is not installed

A message is one sentence for a person: where (file and line), what is wrong, the bound, the remedy.
"""

from collections.abc import Callable
from pathlib import Path


class RegardError(Exception):
    """Base of every refusal; `str(error)` is the sentence to show."""


def printable(sentence: str) -> str:
    """A sentence on one line: names from files of strangers may hold commands to the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in sentence.replace("\n", " "))


class RecipeError(RegardError):
    """A recipe names an unknown key, or gives a value that its field does not take."""


def unknown(
    what: str, name: str, names: list[str], part: Callable[[str], str] = str
) -> RecipeError:
    """The error to raise for a name that is none of `names`; it tells the nearest, or some.

    What is compared is `part` of each.
    """
    from difflib import get_close_matches

    name = name if len(str(name)) < 100 else f"{str(name)[:100]}..."
    parts = {part(known): known for known in names}
    near = [parts[one] for one in get_close_matches(part(str(name)), parts, n=1)]
    advice = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(names[:20])}"
    return RecipeError(f"unknown {what} {name}: {advice}")


class DataError(RegardError):
    """A corpus cannot be used; says which file and, where there is one, which line (from 1)."""

    def __init__(self, problem: str, path: str | Path | None = None, line: int | None = None):
        place = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(place + problem)


class ModelError(RegardError):
    """A model directory or checkpoint is missing, damaged or not ours."""


class Unreadable(ModelError):
    """It may be whole: the system did not let it be read, or it is of another format."""


class TrainingError(RegardError):
    """Training stopped itself, or could not begin."""


class MissingExtra(RegardError):
    """A feature needs an optional dependency: `pip install 'regard[name]'`."""

    def __init__(self, feature: str, extra: str):
        super().__init__(f"{feature} needs an extra: pip install 'regard[{extra}]'")
