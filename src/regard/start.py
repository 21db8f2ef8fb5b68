"""The beginning of a run: the choice of its recipe and its prepared data.

A run directory, RUN, is in one of four states. N, new: it has neither data/ nor recipe.toml. P,
prepared: it has only data/, for example after --plan. B, begun: it has both. E, begun with data
in another place: it has only recipe.toml. *Text* means --source and --target; one without the other
is not enough to prepare data.

In the table, NP means N or P, and BE means B or E. "yes" means that something is given, "no" that
it is not, and "-" that it makes no difference. The first row that fits decides.

    row  RUN  --data  text  --trees  --from  --recipe  --task     recipe            data
      1  -    -       -     -        -       -         unknown    refused
      2  -    -       yes   yes      -       -         -          refused
      3  -    -       -     yes      -       -         translate  refused
      4  -    yes     yes   -        -       -         -          refused
      5  -    yes     -     yes      -       -         -          refused
      6  -    -       yes   -        -       -         parse      refused
      7  N    no      no    no       -       -         -          refused
      8  E    no      no    no       -       -         -          refused
      9  NP   no      yes   no       -       yes       -          the named one     prepared now
     10  NP   no      yes   no       yes     no        -          the model's       prepared now
     11  NP   no      yes   no       no      no        -          for the time**    prepared now
     12  NP   no      no    yes      -       yes       -          the named one     prepared now
     13  NP   no      no    yes      yes     no        -          the model's       prepared now
     14  NP   no      no    yes      no      no        -          small-parse       prepared now
     15  NP   yes     no    no       -       yes       -          the named one*    --data
     16  NP   yes     no    no       yes     no        -          the model's*      --data
     17  NP   yes     no    no       no      no        -          that of --data**  --data
     18  P    no      no    no       -       yes       -          the named one     RUN/data
     19  P    no      no    no       yes     no        -          the model's       RUN/data
     20  P    no      no    no       no      no        -          of RUN/data**     RUN/data
     21  BE   yes     no    no       -       yes       -          the named one*    --data
     22  BE   yes     no    no       -       no        -          that of RUN*      --data
     23  B    no      -     -        -       yes       -          the named one     RUN/data
     24  B    no      -     -        -       no        -          that of RUN       RUN/data
     25  E    no      -     -        -       yes       -          the named one     prepared now
     26  E    no      -     -        -       no        -          that of RUN       prepared now

"Prepared now" means that the data is prepared in RUN/data. The tokenizer is RUN's own in rows 25
and 26. In the other rows, it is that of --tokenizer, or that of the model of --from; without both,
a tokenizer is learned.

A recipe marked ** is chosen for the text, this machine and the time (`regard.budget`). In row 11,
it is always chosen, for MINUTES if no time is given. In rows 17 and 20, it is chosen only if --time
is given and the data is for translation; otherwise it is the recipe of the data. If the recipe was
not chosen for the time, the run ends after --time, or at its last step if this is earlier.

In the recipe, --task or --trees sets task.output, --time sets training.minutes, and --tokenizer
sets the section [tokenizer] of a new run; then --set applies. A recipe marked * then takes from the
data the fields that decide how data is prepared (`data.pairs.DECIDED`).

If RUN was begun, `Run` refuses a recipe that differs from RUN's own, unless changes are accepted.
The section [search] and the time may differ; if the time differs, so may the intervals between
saves and between validations.

Refused as well, before anything is written, are unfit files (`TrainingFiles.refuse_unfit`) and:

    a  --tokenizer, with --data
    b  --valid-trees or --silver, without --trees
    c  --silver-share, without --silver or not between 0 and 1
    d  text, with a recipe for parsing
    e  --from, with a model of another task than the run's
    f  --from, with a --tokenizer or a --set tokenizer.* that differs from the model's
    g  --from, with a recipe for weights of other shapes than those of the model
    h  --from, if it names RUN itself; or if RUN was begun without --from, or with another model
    i  files, or a --tokenizer, other than those that RUN/data was made of, in the rows that use
       RUN/data; in rows 25 and 26, a --tokenizer other than that of RUN
    j  data that was prepared earlier for another task than the recipe's
    k  --data, with a --set of a DECIDED field to another value than the data was prepared with
    l  a recipe whose arithmetic this machine does not have; if data is prepared now, also a recipe
       whose batches have no room for a sentence, or whose tokenizer for BLEU is not installed
    m  a new run with a --set tokenizer.* that differs from its --tokenizer
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from regard.arithmetic.choose import refuse_arithmetic
from regard.budget.choice import Choice, choose, with_time
from regard.budget.text import ParallelText
from regard.data.aligned import Progress
from regard.data.fitting import as_prepared, for_text, refuse_other_task, remark_more_time
from regard.data.layouts import refuse_without_room
from regard.data.pairs import fields_of, recipe_of
from regard.errors import RecipeError, RegardError
from regard.files.whole import refuse_unwritable
from regard.inputs import NO_FILES, TrainingFiles, assigned, described
from regard.machine.cores import started_together
from regard.machine.devices import choose_device
from regard.presets import SMALL_PARSE, recipe_named
from regard.recipe import Recipe
from regard.run.beginning import alone_in, begun
from regard.run.finetuning import keep_origin, open_origin, refuse_other_model, refuse_other_origin
from regard.run.model_directory import Model
from regard.score.bleu import refuse_missing
from regard.text.opening import open_tokenizer

_Chose = Callable[[Choice], object]
_Measured = Callable[[float], ParallelText]
MINUTES = 60.0
"""If no limit of time is given, a recipe is chosen for this many minutes."""


@dataclass(frozen=True)
class Start:
    """The settings by which a run begins; most fields are also options of `regard train`."""

    out: Path
    files: TrainingFiles = NO_FILES
    data: Path | None = None
    tokenizer: Path | None = None
    recipe: Recipe | str | None = None
    """A recipe, its name, or its file."""
    assignments: Sequence[str] = ()
    """Texts for `Recipe.set`: the values of --set."""
    task: str | None = None
    start_from: Path | None = None
    """--from: the directory of a model."""
    minutes: float | None = None
    """--time: the minutes that the run may take; 0 means no limit."""
    whole_vocabulary: bool = False
    """Whether the smallest model that may be chosen has the same vocabulary size as larger ones."""

    @property
    def is_for_trees(self) -> bool:
        """Whether --task parse or --trees asks for a parser; the recipe is not considered."""
        return self.task == "parse" or bool(self.files.trees)

    @property
    def chooses_for_text(self) -> bool:
        """Whether row 11 of this module's table applies (a recipe for the time); reads no text."""
        new = self.data is None and self.start_from is None and begun(self.out) is None
        given = self.recipe is None and not self.is_for_trees and self.files.can_be_prepared
        return new and given

    @property
    def limit(self) -> float | None:
        """The limit in minutes that --time or else `recipe` sets, or None; ignores --set."""
        if self.minutes is None and self.recipe is not None:
            return _given(self.recipe).training.minutes or None
        return self.minutes or None


class Decision(NamedTuple):
    """The recipe and the data that a row of this module's table gives."""

    recipe: Recipe
    data: Path
    """A directory of prepared data."""
    is_prepared: bool
    """True if `data` is used as it is; False if data must be prepared now, in this directory."""


def begin(
    start: Start,
    *,
    progress: Callable[[Progress], object] = lambda _: None,
    remark: Callable[[str], object] = lambda _: None,
    chose: _Chose = lambda _: None,
    trains: bool = True,
) -> tuple[Recipe, Path]:
    """Choose recipe and data, and prepare the data if needed; return recipe and data directory.

    `progress` is called while text is counted or prepared, `chose` if a recipe is chosen for a
    time. `remark` is called with a sentence in four cases: the recipe takes fields from the data;
    many pairs are left out; many are in the validation files, too; a run gets more time, but has
    only a share of its text. If `trains` is False, RUN/from.json is not written. Raises RegardError
    in all refused cases, and the errors of `alone_in`, `keep_origin` and `TrainingFiles.prepare`.
    """
    recipe, data, is_prepared = decide(start, remark, chose, progress)
    if start.start_from is not None:
        refuse_other_origin(start.start_from, start.out)
    with nullcontext() if is_prepared else alone_in(start.out):
        if start.start_from is not None and trains:
            keep_origin(start.start_from, start.out)
        if not is_prepared:
            its = start.tokenizer or (start.start_from and start.start_from / "tokenizer.json")
            if begun(start.out) and (own := start.out / "tokenizer.json").exists():
                _refuse_other_tokenizer(start, own)
                its = own
            start.files.prepare(data, recipe, tokenizer=its, progress=progress, remark=remark)
    return recipe, data


def decide(
    start: Start,
    remark: Callable[[str], object] = lambda _: None,
    chose: _Chose = lambda _: None,
    progress: Callable[[Progress], object] = lambda _: None,
) -> Decision:
    """Decide by this module's table how a run begins; raises RegardError in most refused cases."""
    _refuse_unfit(start)
    model = None if start.start_from is None else _model(start, start.start_from)
    earlier = begun(start.out)
    its = None  # with --tokenizer: [tokenizer] of RUN's recipe or, in a new run, of the given file
    if start.tokenizer is not None:
        its = earlier.tokenizer if earlier else described(start.tokenizer, start.assignments)
    data, is_prepared = _data(start, earlier is not None)
    if earlier is None and model is not None:
        earlier = model.recipe.but(share=1.0)  # the model's share is of another text
    measured = partial(start.files.measured, start.tokenizer, progress=progress)
    recipe = _recipe(start, earlier, data if is_prepared else None, measured, chose)
    if its is not None:
        recipe = recipe.merged({"tokenizer": dict(its)}).set(*start.assignments)
    start.files.refuse_recipe(recipe)
    refuse_arithmetic(recipe.training, choose_device(), torch.get_num_threads())
    if not is_prepared:
        refuse_without_room(recipe.data)
        refuse_missing(recipe.training.bleu_tokenizer)
    if start.start_from is not None and model is not None:
        refuse_other_model(start.start_from, model, recipe, start.assignments)
    if is_prepared:
        recipe = _fitted(start, recipe, data, remark)
    remark_more_time(begun(start.out), recipe, remark)
    return Decision(recipe, data, is_prepared)


def refuse_two_limits(start: Start) -> None:
    """Raise RecipeError if --time is given and --set training.minutes sets a limit, too.

    --set training.minutes=0 may be given with --time, because it sets no limit: the recipe is then
    chosen for --time, but the run does not end when this time is over.
    """
    if start.minutes is not None and assigned(start.assignments, "training.minutes"):
        raise RecipeError("--time (minutes) and training.minutes both limit the time: give one")


def _refuse_unfit(start: Start) -> None:
    """Raise RegardError for rows 1 to 5 and cases a to c (module docstring), and unfit files."""
    start.files.refuse_unfit(start.task)
    if start.data and (start.files.has_text or start.files.trees or start.tokenizer):
        raise RegardError(
            f"{start.data}: is prepared data, which already has a text and a tokenizer: leave out "
            "--source, --target, --trees and --tokenizer, or leave out --data"
        )


def _data(start: Start, is_begun: bool) -> tuple[Path, bool]:
    """The data's directory, and whether it is prepared; raises RegardError if there is no data."""
    if start.data is not None:
        return start.data, True
    data, can_be_prepared = start.out / "data", start.files.can_be_prepared
    if data.is_dir() and (is_begun or not can_be_prepared):
        return data, True
    if can_be_prepared:
        return data, False
    if (start.out / "checkpoints").is_dir():
        raise RegardError(f"{start.out}: has no data of its own: give --data, or its files again")
    raise RegardError(
        f"{start.out}: nothing to train on yet: give --source and --target, --trees, or --data"
    )


def _model(start: Start, directory: Path) -> Model:
    """Open the model of --from; raises RegardError if the run has another task or tokenizer."""
    model = open_origin(directory, start.out)
    made = asked = model.recipe.task.output
    if start.is_for_trees:
        asked = "trees"
    elif start.task == "translate" or start.files.has_text:
        asked = "text"
    if asked != made:
        kind = {"text": "translator", "trees": "parser"}
        raise RegardError(f"{directory}: is a {kind[made]}: a {kind[asked]} cannot begin with it")
    if start.tokenizer is not None and (
        open_tokenizer(start.tokenizer).fingerprint != model.tokenizer.fingerprint
    ):
        raise RegardError(f"{directory}: has a tokenizer of its own: leave out --tokenizer")
    return model


def _recipe(
    start: Start, earlier: Recipe | None, prepared: Path | None, measured: _Measured, chose: _Chose
) -> Recipe:
    """The recipe that the module's table gives, changed by --task or --trees, --time and --set."""
    if start.recipe is not None:
        found = _given(start.recipe)
    elif earlier is not None:
        found = earlier if start.minutes is None else with_time(earlier, start.minutes)
    elif prepared is not None:
        found = recipe_of(prepared)
        if start.minutes is not None and found.task.output == "text":
            found = _for_the_time(start, ParallelText.of_data(prepared), chose, fields_of(prepared))
    elif start.is_for_trees:
        found = SMALL_PARSE
    else:
        refuse_unwritable(start.out)
        found = _for_the_time(start, measured(assigned(start.assignments, "data.share")), chose)
    if start.is_for_trees:
        found = found.but(output="trees")
    elif start.task == "translate":
        found = for_text(found)
    if start.minutes is not None:
        found = found.but(minutes=start.minutes)
    return found.set(*start.assignments)


def _given(recipe: Recipe | str) -> Recipe:
    return recipe if isinstance(recipe, Recipe) else recipe_named(recipe)


def _for_the_time(
    start: Start, text: ParallelText, chose: _Chose, made: Sequence[str] = ()
) -> Recipe:
    """The recipe expected to be best in the run's time; `made` are the prepared data's settings."""
    minutes = assigned(start.assignments, "training.minutes") or start.minutes or MINUTES
    Recipe().but(minutes=minutes)  # refuse NaN or -1 at once: measuring the machine takes time
    its = ["training.minutes=0"] * (start.minutes == 0)
    # Only one process is timed. How much text several will read is not known: so use all of it.
    its += ["data.share=1"] * (started_together() > 1)
    its += [f"tokenizer.vocabulary={text.vocabulary()}"] * start.whole_vocabulary
    choice = choose(text, minutes, asked=(*its, *made, *start.assignments))
    chose(choice)
    return choice.recipe


def _fitted(start: Start, recipe: Recipe, data: Path, remark: Callable[[str], object]) -> Recipe:
    """Fit the recipe to data; raises RegardError if files, tokenizer, task or --set do not fit."""
    if start.data is None and (start.files.has_text or start.files.trees):
        start.files.refuse_other_than(data, start.out)
    refuse_other_task(data, recipe)
    _refuse_other_tokenizer(start, data)
    return recipe if start.data is None else as_prepared(recipe, data, start.assignments, remark)


def _refuse_other_tokenizer(start: Start, own: Path) -> None:
    """Raise RegardError if --tokenizer differs from the tokenizer in `own`, a file or directory."""
    if start.tokenizer is not None and (
        open_tokenizer(start.tokenizer).fingerprint != open_tokenizer(own).fingerprint
    ):
        raise RegardError(
            f"{start.tokenizer}: this run was begun with another --tokenizer: choose another "
            "--out, or leave it out"
        )
