"""Three commands as functions: `regard.prepare`, `regard.train` and `regard.parse`.

A function does the work of the command with the same name, and prints nothing. Where the command
ends with an error message and exit status 2, the function raises a RegardError with this message.
The message names options of the command. An argument that is also an option of the command has the
option's name, except that --from is `start_from`, --set is `changes`, and --time is `minutes`.

A function imports PyTorch only when it is called, because PyTorch takes over a second to load.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from operator import index
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.hosting import heard, saving_at_a_signal, settings_kept, without_draws

if TYPE_CHECKING:
    from regard.budget.choice import Choice
    from regard.data.aligned import Progress
    from regard.data.prepare import Report
    from regard.inputs import TrainingFiles
    from regard.machine.processes import Processes
    from regard.recipe import Recipe
    from regard.run.journal import RecordListener
    from regard.start import Start
    from regard.trees.tree import Tree

Paths = str | Path | Sequence[str | Path]
"""A file, or several files."""
Changes = Mapping[str, bool | int | float | str]
"""New values for fields of a recipe; a key is "section.field", such as "training.steps"."""


def prepare(
    *,
    out: str | Path,
    source: Paths = (),
    target: Paths = (),
    valid_source: Paths = (),
    valid_target: Paths = (),
    trees: Paths = (),
    valid_trees: Paths = (),
    silver: Paths = (),
    silver_share: float | None = None,
    mix: Sequence[int] = (),
    tokenizer: str | Path | None = None,
    recipe: "Recipe | str | Path | None" = None,
    changes: Changes | None = None,
    workers: int | None = None,
    progress: "Callable[[Progress], object]" = lambda _: None,
) -> "Report":
    """Make `out`, a directory of prepared data, from files of text or of trees (§5.1, §6.3).

    Text is UTF-8 with one sentence on each line, and line i of `target` translates line i of
    `source`; trees are in Penn bracketing. A file may be plain, .gz, .xz or .zst. Without
    validation files, some pairs or trees are held out. Earlier prepared data in `out` is replaced.

        source, target              text to learn from
        valid_source, valid_target  text to validate on
        trees, valid_trees          trees, to make a parser instead of a translator
        silver, silver_share        trees that a parser wrote, and their share, in (0, 1), among all
                                    training trees; by default, each tree is used once
        mix                         for each file of `source`, how often its pairs occur in an
                                    epoch; by default, once
        tokenizer                   a tokenizer.json to use; by default, a tokenizer is learned
        recipe                      a recipe, its name or its file; by default, the recipe
                                    "small-parse" for trees, or the recipe "small" for text, with a
                                    vocabulary, row length, maximum length and BLEU tokenizer that
                                    suit the text
        changes                     fields of the recipe to change: {"data.max_length": 100}
        workers                     the most processes that share the work on text; by default, one
                                    for each usable core. Not for trees
        progress                    called with a `data.aligned.Progress` while files are read

    Returns how many pairs or trees were kept and left out, the sizes of the vocabularies, and the
    checksum of the tokenizer. Raises DataError for files that cannot be used, or if `out` cannot be
    written or holds other files; RecipeError for an invalid recipe or change; ModelError for a
    tokenizer that cannot be used; MissingExtra if the tokenizer needs an optional dependency that
    is not installed; RegardError if arguments are invalid or exclude each other, if no files to
    learn from are given, if a given file is inside `out`, if `out` is the current directory, if the
    recipe does not fit the files, or if a worker process was killed; and TypeError if `mix`,
    `workers` or `changes` has a wrong type.

    >>> report = regard.prepare(source="a.en", target="a.de", out="prepared")  # doctest: +SKIP
    >>> report.train.kept                                                      # doctest: +SKIP
    29000
    """
    from regard.inputs import prepare_files

    files = _files(
        source, target, valid_source, valid_target, trees, valid_trees, silver, silver_share, mix
    )
    with heard(progress) as hear:
        return prepare_files(
            files,
            _named(out, "--out"),
            recipe=_recipe(recipe),
            assignments=_assignments(changes),
            tokenizer=_path(tokenizer, "--tokenizer"),
            workers=None if workers is None else _whole("workers", workers),
            progress=hear,
        )


def train(
    *,
    out: str | Path,
    source: Paths = (),
    target: Paths = (),
    valid_source: Paths = (),
    valid_target: Paths = (),
    trees: Paths = (),
    valid_trees: Paths = (),
    silver: Paths = (),
    silver_share: float | None = None,
    mix: Sequence[int] = (),
    data: str | Path | None = None,
    tokenizer: str | Path | None = None,
    recipe: "Recipe | str | Path | None" = None,
    changes: Changes | None = None,
    task: str | None = None,
    start_from: str | Path | None = None,
    minutes: float | None = None,
    accept_changes: bool = False,
    micro_batches: int | None = None,
    processes: "Processes | None" = None,
    shard: bool = False,
    progress: "RecordListener" = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
) -> Path:
    """Train a model in the run directory `out` for the recipe's steps or minutes; return `out`.

    The same call continues a run that was stopped. Afterwards, `regard.load(out)` opens the
    translator, or `regard.load_parser(out)` the parser. A table in `regard.start` shows the recipe
    and the data that a run begins with.

        source ... mix, tokenizer, recipe, changes   as for `prepare`
        data              a directory that `prepare` made, in place of files
        task              "translate" or "parse"; by default, the files, data or model decide
        minutes           the minutes that the run may take; 0 means no limit. If a new translator
                          has no `recipe` and no `start_from`, a recipe is chosen that suits this
                          time (for 0, one hour). If such a translator learns from files, the
                          default is 60; otherwise, the run's recipe sets the limit by default
        start_from        a model directory; training begins with the weights of its model
        accept_changes    continue although the recipe or the data has changed
        micro_batches     the number of parts that a batch is divided into: a larger number needs
                          less memory, and the update is the same. By default, a new run begins
                          with 1. Whenever the memory is too small, the number is doubled
        processes         in a program that torchrun starts: the value that the context manager
                          `machine.processes.together()` yields; by default, only this process
        shard             divide the weights and the optimizer's moments among the processes
        progress          called with a dict for each event, whose name is under the key "event".
                          "prepare" comes while text is counted or data is prepared; its fields
                          are those of `data.aligned.Progress`. "chosen" has the fields of
                          `budget.choice.Choice`, with the recipe as TOML. Later dicts are records
                          of out/journal.jsonl, such as "start", "step" (with loss and rate),
                          "validation" (with perplexity, accuracy and bleu or f1), "save", "finish"
        warn              called with each warning, a sentence

    During training in the main thread, a checkpoint is saved after Ctrl-C, SIGTERM or SIGHUP;
    Ctrl-C then raises KeyboardInterrupt, and the other signals raise SystemExit. After the last
    step, while the model is averaged and tuned, a signal raises the same exception. If only one
    process trains, a second signal other than SIGHUP stops it at once, without a checkpoint.

    Raises RecipeError, DataError or ModelError for a recipe, data or a model that cannot be used;
    TrainingError if training cannot begin or continue; MissingExtra if an optional dependency is
    not installed; RegardError if arguments are missing, invalid or exclude each other, if `out`
    cannot hold this run, or if a worker process was killed; and TypeError if `mix`,
    `micro_batches` or `changes` has a wrong type.

    >>> run = regard.train(source="a.en", target="a.de", out="runs/a")  # doctest: +SKIP
    >>> regard.load(run).translate(["A dog sleeps."])                   # doctest: +SKIP
    ['Ein Hund schläft.']
    >>> regard.train(trees="wsj.mrg", out="runs/parser", changes={"training.steps": 2000},
    ...              progress=print)                                    # doctest: +SKIP
    """
    from regard.machine.processes import ALONE
    from regard.run.finetuning import origin_forgotten_after_errors
    from regard.start import Start, begin
    from regard.trainer import train_prepared

    began, text = monotonic(), (source, target, valid_source, valid_target)
    files = _files(*text, trees, valid_trees, silver, silver_share, mix)
    start = Start(
        _named(out, "--out"), files, _path(data, "--data"), _path(tokenizer, "--tokenizer"),
        _recipe(recipe), _assignments(changes), task, _path(start_from, "--from"), minutes,
    )  # fmt: skip
    _refuse_unfit(start)
    together, parts = processes or ALONE, micro_batches and _whole("micro_batches", micro_batches)

    def reads(reading: "Progress") -> None:
        hear({"event": "prepare", **asdict(reading)})

    def chose(choice: "Choice") -> None:
        hear({"event": "chosen", **choice._asdict()} | {"recipe": choice.recipe.to_toml()})

    first = partial(begin, start, progress=reads, remark=warn, chose=chose)
    forgotten = origin_forgotten_after_errors(start.out)
    with settings_kept(), forgotten, heard(without_draws(progress)) as hear:
        chosen, prepared = together.first_does(first)
        with saving_at_a_signal(patient=together.count > 1) as interrupt:
            train_prepared(
                chosen, prepared, start.out, listeners=(hear,), warn=warn, interrupt=interrupt,
                accept_changes=accept_changes, processes=together, micro_batches=parts,
                shard=shard, began=began,
            )  # fmt: skip
    return start.out


def _refuse_unfit(start: "Start") -> None:
    """Raise RegardError for two time limits, or if only --seeds or --diversify began `out`."""
    from regard.diversified import refuse_diversified
    from regard.members import alone
    from regard.start import refuse_two_limits

    refuse_two_limits(start)
    refuse_diversified(start.out)
    list(alone(start))  # `alone` is a generator, and raises its error when it is read


def parse(directory: str | Path, sentences: Iterable[str | Sequence[str]]) -> "list[Tree]":
    """Parse sentences with the parser in a model directory; return one tree per sentence (§6.3).

    A sentence is a list of words, or a text, which is split into words as in the Penn Treebank; to
    split text, the optional dependencies `regard[parse]` must be installed. Each call reads the
    model: to parse several times, open the parser once with `regard.load_parser`.

    Raises DataError for a sentence without words, for a word that is empty or has a blank, and for
    a lone surrogate, which is no character; MissingExtra for a text if the optional dependencies
    are not installed; TypeError if `sentences` is a single text, or if a sentence is neither a text
    nor a list of words; and the other errors of `load_parser` and of `parsing.Parser.parse`.

    >>> [tree] = regard.parse("runs/parser", ["The dog barks ."])  # doctest: +SKIP
    >>> print(tree)                                                # doctest: +SKIP
    (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .))
    """
    from regard.parsing import load, treebank_words

    if isinstance(sentences, str):
        raise TypeError("one str is not a list of sentences: give [text]")
    given = list(sentences)
    cut = treebank_words() if any(isinstance(sentence, str) for sentence in given) else None
    words = [cut(one) if cut and isinstance(one, str) else one for one in given]
    return load(directory).parse(words)


def _files(
    source: Paths,
    target: Paths,
    valid_source: Paths,
    valid_target: Paths,
    trees: Paths,
    valid_trees: Paths,
    silver: Paths,
    silver_share: float | None,
    mix: Sequence[int],
) -> "TrainingFiles":
    from regard.inputs import TrainingFiles

    if not isinstance(mix, Iterable):
        raise TypeError(f"mix: expected whole numbers in a list, not {mix!r:.80}")
    text = _paths(source), _paths(target), _paths(valid_source), _paths(valid_target)
    parsed = _paths(trees), _paths(valid_trees), _paths(silver)
    return TrainingFiles(*text, *parsed, silver_share, tuple(_whole("mix", share) for share in mix))


def _whole(name: str, given: int) -> int:
    """Return `given` as an int; if it is no integer, raise TypeError with the argument's `name`."""
    try:
        return index(given)
    except TypeError:
        raise TypeError(f"{name}: expected a whole number, not {given!r:.80}") from None


def _paths(given: Paths) -> tuple[Path, ...]:
    return tuple(map(_named, (given,) if isinstance(given, str | Path) else given))


def _named(given: str | Path, option: str = "") -> Path:
    """Return `given` as a Path; raise RegardError if it cannot name a file (a NUL, for example).

    With `option`, "" raises RegardError, too, because a Path of "" means the current directory.
    """
    if given == "" and option:
        raise RegardError(f"{option} has no value: name a file or a directory")
    try:
        os.access(given, os.F_OK)
    except ValueError as error:
        raise RegardError(f"{str(given)!r:.200} cannot name a file: {error}") from None
    return Path(given)


def _path(given: str | Path | None, option: str) -> Path | None:
    return None if given is None else _named(given, option)


def _recipe(given: "Recipe | str | Path | None") -> "Recipe | str | None":
    """Return `given` or, in place of a Path, a text that can name only a file.

    For example, Path("base") becomes "./base", because "base" is the name of a recipe.
    """
    if not isinstance(given, Path):
        return given
    return str(given) if len(given.parts) > 1 else f"./{given}"


def _assignments(changes: Changes | None) -> list[str]:
    """Texts "section.key=value" for `Recipe.set`, with the values as JSON; [] if `changes` is None.

    Raises TypeError if `changes` is neither a mapping nor None, or if `_json` refuses a value.
    """
    if not isinstance(changes, Mapping | None):
        raise TypeError(f'changes is a dict such as {{"training.steps": 100}}, not {changes!r:.80}')
    assigned = (changes or {}).items()
    return [f"{field}={_json(value)}" for field, value in assigned]


def _json(value: Any) -> str:
    """The JSON of a field's value: for a number, a text or a truth value, JSON is also TOML.

    Raises TypeError for None, and for an object that JSON cannot express.
    """
    if value is None:
        raise TypeError("None is no value of a field")
    return json.dumps(value, default=_scalar, ensure_ascii=False)


def _scalar(value: Any) -> bool | int | float | str:
    """The Python value of a NumPy scalar or a tensor without dimensions; else raises TypeError."""
    if getattr(value, "ndim", None) != 0:
        raise TypeError(f"{value!r:.80} is no value of a field")
    found: bool | int | float | str = value.item()
    return found
