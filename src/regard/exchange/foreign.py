"""A foreign model (a model of another program), converted but not yet written or compared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.errors import ModelError, RecipeError
from regard.exchange.certificate import Side
from regard.recipe import MOST_STEPPED, Recipe
from regard.text.protocol import AnyTokenizer

LONGEST_SOURCE = 512
"""A source has at most this many tokens, if the files of a foreign model give no limit."""


class NotRunError(Exception):
    """The foreign model cannot be run here for a certificate; the message says why."""


@dataclass(frozen=True)
class Foreign:
    """A model of another program, converted to the recipe, weights and tokenizer of regard."""

    format: str
    """The name of the foreign format, such as "hf"."""
    where: Path
    """The file or directory of the foreign model."""
    recipe: Recipe
    weights: dict[str, Tensor]
    """The weights in fp32, under regard's names."""
    tokenizer: AnyTokenizer
    files: dict[str, str]
    """SHA-256 checksums of the files that were read. Each key is the name of a file or, if several
    files have this name, the path of the file."""
    side: Callable[[], Side]
    """A function that opens the foreign model. An import compares this model with the converted
    one, and writes the result of the comparison as a `Certificate`. The function raises NotRunError
    if the foreign model cannot be run here."""


def not_run(why: str) -> Callable[[], Side]:
    """Return a function for `Foreign.side` that raises NotRunError, with the reason `why`."""

    def side() -> Side:
        raise NotRunError(why)

    return side


def foreign_recipe(where: Path, vocabulary: int, longest: int, **fields: Any) -> Recipe:
    """A recipe (configuration of regard) with the given fields; all others keep their defaults.

    `vocabulary` is the number of entries of the target's vocabulary; a number below 300 becomes
    300. `longest` is the maximum length of a source in tokens; numbers below 2 become 2, and
    numbers above 2**20 become 2**20. `fields` must include `d_model` and `heads`. Raises
    ModelError, which names the file `where`, if no recipe can have these fields.
    """
    width, heads = fields["d_model"], fields["heads"]
    if heads > 0 and width % heads:
        raise ModelError(f"{where}: d_model = {width} is not a multiple of its {heads} heads")
    fields |= {"vocabulary": max(300, vocabulary), "max_length": max(2, min(longest, 2**20))}
    try:
        return Recipe().but(**fields)
    except RecipeError as error:
        raise ModelError(f"{where}: no model here can have that: {error}") from None


def most_extra(limit: int, beam: int) -> int:
    """The value of `search.max_extra` that is nearest to `limit` and allowed with this `beam`.

    `limit` is the maximum length of an output of the foreign search, in tokens. In regard, an
    output may have at most `search.max_extra` tokens more than its source.
    """
    return max(1, min(limit, 10_000, MOST_STEPPED // max(1, beam)))


class ForeignConfig:
    """The configuration of another program's model, whose values are checked when they are read.

    The methods `whole`, `real`, `flag`, `word` and `choice` use `default` for a missing key. They
    raise ModelError if the key is missing and `default` is None, and if the value has a wrong type.
    `get` checks nothing.
    """

    def __init__(self, content: Mapping[str, Any], where: Path):
        self._content, self.where = dict(content), where

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def whole(self, key: str, default: int | None = None, least: int = 0, most: int = 2**31) -> int:
        """The value of a key; raises ModelError unless it is an int from `least` to `most` - 1."""
        value = self._get(key, default)
        if type(value) is not int or not least <= value < most:
            raise self.refusal(key, f"a whole number from {least} to {most - 1:,}")
        return value

    def real(self, key: str, default: float | None = None, least: float = 0.0) -> float:
        """The value of a key; raises ModelError unless it is a number from `least` to 1e9."""
        value = self._get(key, default)
        if type(value) not in (int, float) or not least <= value <= 1e9:
            raise self.refusal(key, f"a number from {least:g}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """The value of a key; raises ModelError unless it is a boolean."""
        value = self._get(key, default)
        if type(value) is not bool:
            raise self.refusal(key, "true or false")
        return value

    def word(self, key: str, default: str | None = None) -> str:
        """The value of a key; raises ModelError unless it is text."""
        value = self._get(key, default)
        if type(value) is not str:
            raise self.refusal(key, "a text")
        return value

    def choice(self, key: str, values: Mapping[str, str], default: str | None = None) -> str:
        """Look up the value of a key, or `default`, in `values`, and return the result.

        Raises ModelError if the value is not a key of `values`.
        """
        value = self.word(key, default)
        if value not in values:
            raise self.refusal(key, f"one of {', '.join(values)} to be converted exactly")
        return values[value]

    def only(self, key: str, *values: Any) -> None:
        """Raise ModelError if a key has a value that is not one of `values`.

        A missing key is accepted. True equals 1 in Python, so types are compared, too: if the first
        of `values` is a boolean, only booleans are accepted; otherwise, no booleans are accepted.
        """
        value = self._content.get(key, values[0])
        if value not in values or isinstance(value, bool) != isinstance(values[0], bool):
            raise self.refusal(key, f"{values[0]!r} to be converted exactly")

    def section(self, key: str) -> "ForeignConfig":
        """The nested configuration that is the value of a key, without null entries.

        Raises ModelError if the key is missing, or if its value is not a nested configuration.
        """
        value = self._get(key, None)
        if not isinstance(value, dict):
            raise self.refusal(key, "an object of keys")
        content = {str(name): one for name, one in value.items() if one is not None}
        return ForeignConfig(content, self.where)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, of any type; `default` if the key is missing."""
        return self._content.get(key, default)

    def _get(self, key: str, default: Any) -> Any:
        if key not in self._content and default is None:
            raise ModelError(f"{self.where}: has no {key}: it is of another kind, or not complete")
        return self._content.get(key, default)

    def refusal(self, key: str, asked: str) -> ModelError:
        """The error for a key whose value is not what `asked` describes."""
        found = repr(self._content.get(key))
        shown = found if len(found) < 60 else f"{found[:60]}..."
        return ModelError(f"{self.where}: {key} is {shown}: it must be {asked}")
