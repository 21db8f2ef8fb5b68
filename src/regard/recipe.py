"""A recipe: what to build and how, as an immutable value in the paper's symbols.

A recipe has six sections. Every field name is unique among them, so that a variation reads as the
paper's Table 3 does: `BASE.but(heads=1, d_k=512, d_v=512)`. On disk it is TOML:

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
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from regard.errors import RecipeError, unknown

_LONGEST_FILE = 2**14
"""Characters of a recipe file at most, since reading TOML may take quadratic time."""
MOST_STEPPED = 100_000
"""The largest beam x max_extra: keys and values are kept for every step of every hypothesis."""
Count = Annotated[int, Field(ge=1, lt=2**31)]
_Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]


class Section(BaseModel):
    """A section of a recipe: immutable, strictly typed, without NaN, infinity or unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class ModelRecipe(Section):
    """§3: the architecture. The defaults are the paper's base model."""

    layers: Annotated[int, Field(ge=1, le=1000)] = 6
    """N: identical layers in the encoder, and in the decoder."""
    d_model: Annotated[int, Field(ge=2, le=2**15, multiple_of=2)] = 512
    """Width of the embeddings and of every sub-layer's output."""
    d_ff: Count = 2048
    """Inner width of the feed-forward networks."""
    heads: Count = 8
    """h: parallel attention heads."""
    d_k: Count = 64
    """Width of queries and keys in one head; d_model / heads if not given."""
    d_v: Count = 64
    """Width of values in one head; d_model / heads if not given."""
    dropout: _Fraction = 0.1
    """P_drop: dropout on every sub-layer's output, and on embedding + position."""
    attention_dropout: _Fraction = 0.0
    """Dropout on the attention weights; the paper uses it for parsing only."""
    relu_dropout: _Fraction = 0.0
    """Dropout after the ReLU of the feed-forward networks; none in the paper."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Positional encoding: §3.5's sinusoids, or learned (row E of Table 3)."""
    max_positions: Count = 1024
    """Number of positions of a learned encoding; sinusoids have no limit."""

    @model_validator(mode="before")
    @classmethod
    def _split_width_among_heads(cls, given: Any) -> Any:
        if isinstance(given, dict):
            width, heads = given.get("d_model", 512), given.get("heads", 8)
            if isinstance(width, int) and isinstance(heads, int) and heads > 0:
                return {"d_k": max(1, width // heads), "d_v": max(1, width // heads)} | given
        return given


class TokenizerRecipe(Section):
    """§5.1: one vocabulary shared by source and target."""

    kind: Literal["bpe", "wordpiece"] = "bpe"
    """Byte-pair encoding (EN-DE) or word pieces (EN-FR); unseen characters fall back to bytes."""
    vocabulary: Annotated[int, Field(ge=300, le=1_000_000)] = 37_000
    """Entries, including the 256 bytes and three special symbols."""


class DataRecipe(Section):
    """§5.1: which sentence pairs are kept, and how they are batched."""

    max_length: Annotated[int, Field(ge=2, lt=2**31)] = 256
    """Pieces of the longest sentence kept for training, on either side, </s> included."""
    max_ratio: Annotated[float, Field(ge=1.0)] = 9.0
    """Largest length ratio of a kept pair, in characters, for pairs over ten characters."""
    deduplicate: bool = False
    """Keep only the first of identical pairs."""
    held_out: Count = 1000
    """Pairs set aside for validation if no validation files are given; at most a tenth."""
    source_tokens: Count = 25_000
    """Source tokens in a batch, including padding."""
    target_tokens: Count = 25_000
    """Target tokens in a batch, including padding."""
    layout: Literal["packed", "grouped"] = "packed"
    """Rows of equal width, packed with pairs; or batches of pairs of similar length (§5.1)."""
    row_length: Annotated[int, Field(ge=8, lt=2**31, multiple_of=8)] = 256
    """Width of a packed row in tokens."""


BleuTokenizer = Literal["13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"]


class TrainingRecipe(Section):
    """§5.2 to §5.4: duration, learning rate, regularisation, validation and checkpoints."""

    steps: Count = 100_000
    """Optimizer steps in total."""
    warmup_steps: Count = 4000
    """Steps over which the learning rate rises linearly."""
    beta1: _Fraction = 0.9
    """Adam's decay of the first moment."""
    beta2: _Fraction = 0.98
    """Adam's decay of the second moment."""
    epsilon: Annotated[float, Field(ge=1e-30)] = 1e-9
    """Adam's epsilon."""
    label_smoothing: _Fraction = 0.1
    """epsilon_ls: the probability spread over the whole vocabulary."""
    accumulate: Count = 1
    """Batches whose gradients are summed into one step."""
    arithmetic: Literal["auto", "plain", "whole", "halves", "loops"] = "auto"
    """How the equations are computed: auto is the fastest way, plain by their definitions. The
    others are the ways from which auto chooses on a CPU; see `arithmetic.choose`."""
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    """Number format: auto is bf16 if the processor has it; weights always have an fp32 copy.

    int8 is auto with 8-bit products of states and weights, and of gradients and weights in linear
    layers. It needs an x86 processor with VNNI; on one or two cores it is faster than bf16.
    """
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed of the initialisation, the order of the data, and dropout."""
    log_every: Count = 20
    """Steps between two records of the journal."""
    validate_every: Count = 1000
    """Steps between two validations; the last step is always validated."""
    patience: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Validations without a lower loss after which training stops early; 0 means never."""
    validate_sentences: Annotated[int, Field(ge=0, lt=2**31)] = 200
    """Sentences decoded for BLEU at each validation; 0 means none."""
    bleu_tokenizer: BleuTokenizer = "13a"
    """sacreBLEU's tokenizer; zh, ja-mecab or ko-mecab for languages whose words need segmenting."""
    save_every: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Steps between two checkpoints; 0 means that only save_minutes counts."""
    save_minutes: Annotated[float, Field(ge=0)] = 10.0
    """Minutes between two checkpoints; 0 means that only save_every counts."""
    keep: Count = 5
    """Number of newest checkpoints that are kept."""
    average: Count = 5
    """Last checkpoints averaged into the final model (§6.1: 5 for base, 20 for big)."""

    @model_validator(mode="after")
    def _keeps_what_it_averages(self) -> Self:
        if self.keep < self.average:
            raise ValueError(
                f"keep = {self.keep} is less than average = {self.average}: keep at least as many "
                "checkpoints as are averaged"
            )
        return self


class SearchRecipe(Section):
    """§6.1: beam search."""

    beam: Annotated[int, Field(ge=1, le=1000)] = 4
    """Live hypotheses per step; 1 is greedy search."""
    alpha: Annotated[float, Field(ge=0, le=10)] = 0.6
    """Length penalty: score = log p / ((5 + length) / 6)^alpha."""
    max_extra: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Pieces that the longest output has more than the source."""

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.beam * self.max_extra > MOST_STEPPED:
            raise ValueError(
                f"beam = {self.beam} times max_extra = {self.max_extra} is more than "
                f"{MOST_STEPPED:,}: lower one of them"
            )
        return self

    def but(self, **changes: Any) -> SearchRecipe:
        """This section with some fields changed; raises RecipeError."""
        return Recipe(search=self).but(**changes).search


class TaskRecipe(Section):
    """§6: what the model writes for a sentence."""

    output: Literal["text", "trees"] = "text"
    """Its translation (§6.1), or its constituency tree (§6.3)."""
    form: Literal["tags", "normalised"] = "tags"
    """The symbol of a word in a linearised tree: its tag, as in the authors' code, or XX."""


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

    def but(self, **changes: Any) -> Recipe:
        """This recipe with some fields changed, by their names alone; raises RecipeError."""
        sections: dict[str, dict[str, Any]] = {}
        for key, value in changes.items():
            sections.setdefault(_section_of(key), {})[key] = value
        return self.merged(sections)

    def merged(self, changes: Mapping[str, Any]) -> Recipe:
        """This recipe with `{section: {field: value}}` changed; raises RecipeError."""
        whole: dict[str, Any] = self.model_dump()
        for section, fields in changes.items():
            _check_known(section, list(Recipe.model_fields), "section")
            if not isinstance(fields, Mapping):
                raise RecipeError(f"{section} is a section: write [{section}] and keys under it")
            for key in fields:
                _check_field(section, key)
            if section == "model" and {"d_model", "heads"} & set(fields):
                del whole[section]["d_k"], whole[section]["d_v"]  # by default d_model / heads
            whole[section] = whole[section] | dict(fields)
        try:
            return Recipe.model_validate(whole)
        except ValidationError as error:
            raise RecipeError(_first_problem(error)) from None

    def set(self, *assignments: str) -> Recipe:
        """This recipe with all `section.key=value` texts applied; values are read as TOML.

        >>> Recipe().set("training.steps=4000").training.steps
        4000
        """
        changes: dict[str, dict[str, Any]] = {}
        for assignment in assignments:
            path, equals, text = assignment.partition("=")
            section, dot, key = path.strip().partition(".")
            if not (equals and dot):
                raise RecipeError(f"--set {assignment!r}: write it as section.key=value")
            changes.setdefault(section, {})[key] = _toml_value(text.strip())
        return self.merged(changes)

    def to_toml(self) -> str:
        """The whole recipe as TOML, in which scalars are written as in JSON."""
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

        Raises RecipeError; its message begins with `where`.
        """
        try:
            table = tomllib.loads(text)
            name = table.pop("base", None)
            if name is None:
                return cls().merged(table)
            _check_known(name, list(bases or {}), "base recipe")
            return (bases or {})[name].merged(table)
        except RecursionError:
            raise RecipeError(f"{where}: nested too deep: a recipe is sections of keys") from None
        except (ValueError, RecipeError) as error:  # TOMLDecodeError, or an int that is too long
            raise RecipeError(f"{where}: {error}") from None

    @classmethod
    def read(cls, path: str | Path, bases: Mapping[str, Recipe] | None = None) -> Recipe:
        """Read a TOML file; raises RecipeError if it is missing, not UTF-8 or not a recipe."""
        try:
            with Path(path).open(encoding="utf-8") as file:
                text = file.read(_LONGEST_FILE + 1)
        except OSError as error:
            raise RecipeError(f"{path}: cannot read the recipe: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise RecipeError(f"{path}: a recipe is UTF-8 text: {error.reason}") from None
        if len(text) > _LONGEST_FILE:
            raise RecipeError(f"{path}: a recipe has at most {_LONGEST_FILE:,} characters")
        return cls.from_toml(text, bases, where=str(path))


def _section_of(key: str) -> str:
    _check_known(key, list(_homes()), "key")
    return _homes()[key]


def _check_field(section: str, key: str) -> None:
    homes = _homes()
    if homes.get(key) != section:
        near = sorted(homes, key=lambda other: homes[other] != section)  # the section's own first
        names = [f"{homes[other]}.{other}" for other in near]
        raise unknown("key", f"{section}.{key}", names, lambda name: name.partition(".")[2])


def _homes() -> dict[str, str]:
    """The section of each field; field names are unique."""
    return {field: name for name, section in Recipe() for field in type(section).model_fields}


def _check_known(name: str, names: list[str], what: str) -> None:
    if name not in names:
        raise unknown(what, name, names)


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
