"""A recipe: all settings of a model and its training, as an immutable value in the paper's symbols.

A recipe has six sections. No two sections have a field of the same name, so a variation is written
like a row of the paper's Table 3: `BASE.but(heads=1, d_k=512, d_v=512)`. A recipe file is TOML:

    base = "base"            # optional: a recipe to start from
    [model]
    layers = 2
"""

from __future__ import annotations

import json
import reprlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from regard.errors import RecipeError, unknown
from regard.sections import (
    BleuTokenizer,
    DataRecipe,
    ModelRecipe,
    Section,
    TokenizerRecipe,
    TrainingRecipe,
)

__all__ = [
    "BleuTokenizer",
    "Change",
    "DataRecipe",
    "ModelRecipe",
    "Recipe",
    "SearchRecipe",
    "TaskRecipe",
    "TokenizerRecipe",
    "TrainingRecipe",
    "changes",
]

_LONGEST_FILE = 2**14
"""A recipe file of more characters than this is refused: reading TOML may take quadratic time."""
_FOLLOW = {
    "d_model": ("d_k", "d_v"),
    "d_ff": ("decoder_d_ff",),
    "heads": ("d_k", "d_v", "decoder_heads"),
    "layers": ("decoder_layers",),
}
"""Maps a field of [model] to the other fields whose defaults are derived from that field."""
WIDEST_BEAM = 1000
"""The largest beam that a recipe may have."""
MOST_STEPPED = 100_000
"""A recipe is refused if its beam x max_extra is larger than this, because keys and values are kept
for every step of every hypothesis."""


class SearchRecipe(Section):
    """§6.1: beam search."""

    beam: Annotated[int, Field(ge=1, le=WIDEST_BEAM)] = 4
    """The number of live hypotheses of each sentence; 1 is greedy search."""
    alpha: Annotated[float, Field(ge=0, le=10)] = 0.6
    """Exponent of the length penalty: score = log p / ((5 + length) / 6)^alpha."""
    penalty: Literal["gnmt", "length"] = "gnmt"
    """Base of the length penalty. gnmt: (5 + length) / 6, as in the paper's reference. length: the
    length itself, with </s>, as in the libraries transformers and CTranslate2."""
    finish: Literal["candidates", "beam"] = "candidates"
    """Which hypotheses may finish at a step. candidates: any of the 2 x beam candidates that end in
    </s>. beam: only those among the `beam` best, as in the library transformers; the search also
    ends earlier."""
    max_extra: Annotated[int, Field(ge=1, le=10_000)] = 50
    """An output may have at most this many pieces more than its source."""

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.beam * self.max_extra > MOST_STEPPED:
            raise ValueError(
                f"beam = {self.beam} times max_extra = {self.max_extra} is more than "
                f"{MOST_STEPPED:,}: lower one of them"
            )
        return self

    def length_penalty(self, length: int) -> float:
        """The number that divides log p of a hypothesis of this length, </s> included.

        The length 0, of a hypothesis without any token, counts as 1.
        """
        length = max(1, length)
        return float(length if self.penalty == "length" else (5 + length) / 6) ** self.alpha

    def but(self, **changes: Any) -> SearchRecipe:
        """This section with some fields changed; raises RecipeError for a wrong key or value."""
        return Recipe(search=self).merged({"search": changes}).search


class TaskRecipe(Section):
    """§6: the output that the model writes for a sentence."""

    output: Literal["text", "trees"] = "text"
    """text: the translation of the sentence (§6.1). trees: its constituency tree (§6.3)."""
    form: Literal["tags", "normalised"] = "tags"
    """The symbol of a word in a linearised tree. tags: its tag, as in the authors' code.
    normalised: XX for every word."""


class Recipe(Section):
    """Everything that determines a model, except the text that it learns from."""

    task: TaskRecipe = TaskRecipe()
    model: ModelRecipe = ModelRecipe()
    tokenizer: TokenizerRecipe = TokenizerRecipe()
    data: DataRecipe = DataRecipe()
    training: TrainingRecipe = TrainingRecipe()
    search: SearchRecipe = SearchRecipe()

    @model_validator(mode="after")
    def _has_positions_for_the_longest(self) -> Self:
        if self.model.positions == "learned" and self.model.max_positions < self.data.max_length:
            raise ValueError(
                f"model.max_positions = {self.model.max_positions} is less than data.max_length = "
                f"{self.data.max_length}: learn a position for every piece of the longest sentence"
            )
        return self

    @model_validator(mode="after")
    def _counts_words_of_trees(self) -> Self:
        if self.model.positions == "words" and self.task.output != "trees":
            raise ValueError(
                'model.positions = "words" is for a parser: leave it out, or set task.output = '
                '"trees"'
            )
        return self

    @model_validator(mode="after")
    def _has_one_pair_a_row(self) -> Self:
        if self.data.layout == "packed" and not self.joins_pairs:
            raise ValueError(
                'data.layout = "packed" puts several pairs in a row, and model.family = '
                f'{self.model.family} does not keep them apart: set data.layout = "grouped"'
            )
        return self

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        best, score = self.training.best, "f1" if self.task.output == "trees" else "bleu"
        if best not in ("last", "loss", score):
            raise ValueError(
                f"training.best = {best}: the validation of this task has loss and {score}"
            )
        if best == score and not self.training.validate_sentences:
            raise ValueError(
                f"training.best = {best} needs training.validate_sentences of 1 or more"
            )
        if self.training.tune and self.task.output == "trees":
            raise ValueError("training.tune is for translation, not for parsing")
        if self.data.share < 1 and self.task.output == "trees":
            raise ValueError("data.share is for translation, not for parsing: set it to 1")
        return self

    @property
    def joins_pairs(self) -> bool:
        """Whether a row may hold several pairs, which only a Transformer keeps apart."""
        return self.model.family == "transformer"

    def but(self, **changes: Any) -> Recipe:
        """This recipe, changed as by `merged`; fields are named without sections: but(heads=1)."""
        sections: dict[str, dict[str, Any]] = {}
        for key, value in changes.items():
            sections.setdefault(_section_of(key), {})[key] = value
        return self.merged(sections)

    def merged(self, changes: Mapping[str, Any]) -> Recipe:
        """This recipe changed by `{section: {field: value}}`.

        Fields that are derived from a changed field are derived again, unless they are given. If
        the changes choose a family other than the Transformer, but no layout, the layout becomes
        "grouped". Raises RecipeError for an unknown section or field, or an invalid value.
        """
        whole: dict[str, Any] = self.model_dump()
        for section, fields in changes.items():
            _check_known(section, list(Recipe.model_fields), "section")
            if not isinstance(fields, Mapping):
                raise RecipeError(f"{section} is a section: write [{section}] and keys under it")
            for key in fields:
                _check_field(section, key)
            if section == "model":
                for follower in {f for key in fields for f in _FOLLOW.get(key, ())}:
                    del whole[section][follower]  # this field is derived again, unless it is given
            whole[section] = whole[section] | dict(fields)
        if _names_a_family(changes):
            whole["data"] |= {"layout": "grouped"}
        try:
            return Recipe.model_validate(whole)
        except ValidationError as error:
            raise RecipeError(_first_problem(error)) from None

    def set(self, *assignments: str) -> Recipe:
        """This recipe changed by texts `section.key=value`, as `merged` changes it.

        A value is read as TOML, or as text if it is not TOML. Raises RecipeError as `merged` does,
        and for a text that lacks the dot or the equals sign.

        >>> Recipe().set("training.steps=4000").training.steps
        4000
        """
        changes: dict[str, dict[str, Any]] = {}
        for assignment in assignments:
            section, dot, key = assigned_field(assignment).partition(".")
            _, equals, text = assignment.partition("=")
            if not (equals and dot):
                raise RecipeError(f"--set {assignment!r}: write it as section.key=value")
            changes.setdefault(section, {})[key] = _toml_value(text.strip())
        return self.merged(changes)

    def to_toml(self) -> str:
        """The whole recipe as TOML; scalars are written as in JSON."""
        lines = []
        for section, fields in self.model_dump().items():
            lines.append(f"[{section}]")
            lines += [f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in fields.items()]
            lines.append("")
        return "\n".join(lines)

    @classmethod
    def from_toml(
        cls, text: str, bases: Mapping[str, Recipe] | None = None, where: str = "recipe"
    ) -> Recipe:
        """Read TOML; `base = "name"` starts from one of `bases` instead of the defaults.

        Raises RecipeError if the text is no recipe; the error's message begins with `where`.
        """
        try:
            table = tomllib.loads(text.removeprefix("\ufeff"))  # some editors write a BOM first
            name = table.pop("base", None)
            if name is None:
                return cls().merged(table)
            _check_known(name, list(bases or {}), "base recipe")
            return (bases or {})[name].merged(table)
        except RecursionError:
            raise RecipeError(f"{where}: nested too deep: a recipe is sections of keys") from None
        except (ValueError, RecipeError) as error:  # ValueError: wrong TOML, or an int too long
            raise RecipeError(f"{where}: {error}") from None

    @classmethod
    def read(cls, path: str | Path, bases: Mapping[str, Recipe] | None = None) -> Recipe:
        """Read a recipe file; raises RecipeError if it is unreadable, too long or no recipe."""
        try:
            with Path(path).open(encoding="utf-8") as file:
                text = file.read(_LONGEST_FILE + 1)
        except OSError as error:
            raise RecipeError(f"{path}: cannot read the recipe: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise RecipeError(f"{path}: a recipe is UTF-8 text: {error.reason}") from None
        except ValueError as error:  # the path has a NUL character or a lone surrogate
            raise RecipeError(f"{str(path)!r:.200}: cannot read the recipe: {error}") from None
        if len(text) > _LONGEST_FILE:
            raise RecipeError(f"{path}: a recipe has at most {_LONGEST_FILE:,} characters")
        return cls.from_toml(text, bases, where=str(path))


class Change(NamedTuple):
    """A field, as `section.key`, and its values in two recipes."""

    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.field}: {self.old} -> {self.new}"


def changes(before: Recipe, after: Recipe) -> list[Change]:
    """The fields in which two recipes differ."""
    return [
        Change(f"{name}.{key}", old, new)
        for name, section in after
        for key, new in section
        if (old := getattr(getattr(before, name), key)) != new
    ]


def _names_a_family(changes: Mapping[str, Any]) -> bool:
    """Whether changes choose a family that needs grouped batches, but do not set the layout."""
    family = changes.get("model", {}).get("family", "transformer")
    return family != "transformer" and "layout" not in changes.get("data", {})


def assigned_field(assignment: str) -> str:
    """The part "section.key" of an assignment; `Recipe.set` takes "section.key=value"."""
    return assignment.partition("=")[0].strip()


HELP = "regard help recipes"
"""The command that shows all recipes and all keys."""


def _section_of(key: str) -> str:
    _check_known(key, list(_homes()), "key")
    return _homes()[key]


def _check_field(section: str, key: str) -> None:
    homes = _homes()
    if homes.get(key) != section:
        # The names of this section's fields come first.
        near = sorted(homes, key=lambda other: homes[other] != section)
        names = [f"{homes[other]}.{other}" for other in near]
        raise unknown("key", f"{section}.{key}", names, lambda name: name.partition(".")[2], HELP)


def _homes() -> dict[str, str]:
    """The section of each field; field names are unique."""
    return {field: name for name, section in Recipe() for field in type(section).model_fields}


def _check_known(name: str, names: list[str], what: str) -> None:
    if name not in names:
        raise unknown(what, name, names, where=HELP)


def _toml_value(text: str) -> Any:
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if len(table) == 1 else text


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    problem = first["msg"].removeprefix("Value error, ")
    given = first["input"]
    shown = "" if isinstance(given, dict | BaseModel) else f" (given: {reprlib.repr(given)})"
    return f"{key}{': ' if key else ''}{problem[0].lower()}{problem[1:]}{shown}"
