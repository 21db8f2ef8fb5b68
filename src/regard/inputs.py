"""Files of sentence pairs or trees that a model learns from, and preparing data from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.budget.text import ParallelText
from regard.data.aligned import AlignedText, Progress
from regard.data.pairs import prepared_manifest
from regard.data.prepare import Report, prepare_text
from regard.errors import DataError, RecipeError, RegardError
from regard.files.lines import text_checksum
from regard.presets import SMALL, SMALL_PARSE, recipe_named
from regard.recipe import Recipe, TokenizerRecipe, assigned_field
from regard.text.cleaning import is_empty
from regard.text.opening import open_tokenizer
from regard.text.tokenizer import CONTINUED, Tokenizer, TokenizerKind


@dataclass(frozen=True)
class TrainingFiles:
    """Files to learn from: text in two languages, for a translator, or trees, for a parser.

    Error messages name a field by its command-line option: `valid_source` is --valid-source.
    """

    source: Sequence[Path] = ()
    """Text, one sentence per line."""
    target: Sequence[Path] = ()
    """Translations of the lines of `source`, in equally many files."""
    valid_source: Sequence[Path] = ()
    valid_target: Sequence[Path] = ()
    trees: Sequence[Path] = ()
    """Gold trees, in Penn bracketing."""
    valid_trees: Sequence[Path] = ()
    silver: Sequence[Path] = ()
    """Trees that a parser wrote, to learn from in addition to the gold trees."""
    silver_share: float | None = None
    """Share of silver trees among all training trees, in (0, 1); None uses each tree once."""
    mix: Sequence[int] = ()
    """For each file of `source`, how often its pairs occur in an epoch; empty means once each."""

    @property
    def has_text(self) -> bool:
        """Whether any file of text is given."""
        return any((self.source, self.target, self.valid_source, self.valid_target))

    @property
    def content(self) -> str:
        """The kind of examples in the files: "trees" or "pairs"."""
        return "trees" if self.trees else "pairs"

    @property
    def can_be_prepared(self) -> bool:
        """Whether there are enough files to prepare data: source and target text, or trees."""
        return bool(self.trees or (self.source and self.target))

    def refuse_unfit(self, task: str | None = None) -> None:
        """Raise RegardError if files do not go together, or an option is invalid.

        Files do not go together if they exclude one another, or need files that are not given.
        `task` is the value of --task: "translate", "parse" or None.
        """
        if task not in (None, "translate", "parse"):
            raise RecipeError(f"--task {task}: it is translate or parse")
        if self.silver_share is not None and not 0 < self.silver_share < 1:
            raise RecipeError(f"--silver-share {self.silver_share}: give a share between 0 and 1")
        if self.trees and (task == "translate" or self.has_text):
            raise RegardError(
                "--trees is for parsing, --source and --target are for translation, and so is "
                "--task translate: leave out --trees, or the others"
            )
        self._refuse_unpaired()
        self._refuse_unfit_mix()
        if (self.valid_trees or self.silver) and not self.trees:
            raise RegardError("--valid-trees and --silver go with gold trees: give --trees too")
        if self.silver_share is not None and not self.silver:
            raise RegardError("--silver-share is the share of silver trees: give --silver too")

    def _refuse_unpaired(self) -> None:
        """Raise RegardError if there are not as many source files as target files."""
        for prefix, sources, targets in (
            ("--valid-", self.valid_source, self.valid_target),
            ("--", self.source, self.target),
        ):
            if len(sources) != len(targets):
                raise RegardError(
                    f"{prefix}source names {len(sources)} and {prefix}target {len(targets)} files: "
                    "give them in pairs"
                )

    def _refuse_unfit_mix(self) -> None:
        whole = all(isinstance(share, int) and share >= 1 for share in self.mix)
        if self.mix and (len(self.mix) != len(self.source) or not whole):
            raise RegardError(
                f"--mix {','.join(map(str, self.mix))}: give one whole number from 1 for each "
                f"--source, of which there are {len(self.source)}"
            )

    def refuse_recipe(self, recipe: Recipe) -> None:
        """Raise RegardError if text is given and the recipe is for a parser."""
        if self.has_text and recipe.task.output == "trees":
            raise RegardError(
                "parsing is learned from trees: give --trees, not --source and --target"
            )

    def suited(
        self,
        tokenizer: Path | None = None,
        share: float = 1.0,
        progress: Callable[[Progress], object] = lambda _: None,
    ) -> Recipe:
        """The default recipe for these files.

        For trees, this is the recipe "small-parse", unchanged. For text, it is the recipe "small"
        with a row length, a maximum length of sentences, a BLEU tokenizer and a vocabulary size
        that suit this share of the text. If `tokenizer` is given, the vocabulary size is the size
        of the tokenizer, but at least 300 and at most 1,000,000. `progress` is called while the
        text is counted. Raises the errors of `measured`.
        """
        if self.trees:
            return SMALL_PARSE
        return self.measured(tokenizer, share, progress).suited(SMALL)

    def measured(
        self,
        tokenizer: Path | None = None,
        share: float = 1.0,
        progress: Callable[[Progress], object] = lambda _: None,
    ) -> ParallelText:
        """Measure the text by `ParallelText.of`, and scale the result to this share of the text.

        Raises the errors of `ParallelText.of`. The validation files are read, too. DataError is
        raised if one of them cannot be read, if lines have no counterparts, or if no pair has text
        on both sides. So these errors come now, and not after long work.
        """
        valid = AlignedText(self.valid_source, self.valid_target).pairs()
        if self.valid_source and not sum(not is_empty(*pair) for pair in valid):
            raise DataError(
                "no pair to validate on: give more text, or leave out --valid-source and "
                "--valid-target",
                self.valid_source[0],
            )
        return ParallelText.of(self.source, self.target, tokenizer, progress).drawn(share)

    def refuse_other_than(self, data: Path, run: Path) -> None:
        """Raise RegardError unless the data in `data` was prepared from exactly these files.

        Files are compared by their checksums and their order. `mix` and `silver_share` must be as
        they were when the data was prepared, too. `run` is the directory of the run that uses the
        data.
        """
        manifest = prepared_manifest(data)
        inputs = manifest.get("inputs", {})
        advice = (
            "choose another --out, or leave these options out to continue with the original files"
        )
        if data == run / "data":  # the data was prepared for this run
            advice += (
                "; to continue with changed files, prepare them by regard prepare --tokenizer "
                f"{run}/tokenizer.json, and give --data and --accept-changes"
            )
        for option, name, paths in self._by_option():
            originals = [record["sha256"] for record in inputs.get(name, [])]
            given = [text_checksum(path) for path in paths]
            for path, its in zip(paths, given, strict=True):
                if its not in originals:
                    raise RegardError(f"{path}: this run was begun with another {option}: {advice}")
            if given != originals:
                raise RegardError(f"{run}: was begun with other files of {option}: {advice}")
        if list(self.mix) != manifest.get("mix", []):
            raise RegardError(f"{run}: was begun with another --mix: {advice}")
        share = manifest.get("silver_share")
        if share != self.silver_share:
            how = "without --silver-share" if share is None else f"with --silver-share {share}"
            raise RegardError(f"{run}: was begun {how}: {advice}")

    def _by_option(self) -> list[tuple[str, str, Sequence[Path]]]:
        """For each kind of file: its option, the name of the kind in a manifest, and the files."""
        return [
            ("--source", "train.source", self.source),
            ("--target", "train.target", self.target),
            ("--valid-source", "valid.source", self.valid_source),
            ("--valid-target", "valid.target", self.valid_target),
            ("--trees", "train.trees", self.trees),
            ("--valid-trees", "valid.trees", self.valid_trees),
            ("--silver", "silver.trees", self.silver),
        ]

    def prepare(
        self,
        out: Path,
        recipe: Recipe,
        *,
        tokenizer: Path | None = None,
        workers: int | None = None,
        progress: Callable[[Progress], object] = lambda _: None,
        remark: Callable[[str], object] = lambda _: None,
    ) -> Report:
        """Write prepared data to `out`; raises the errors of `prepare_trees` or `prepare_text`.

        `remark` is called with a message if many training pairs, or trees, are left out, and with
        another message if many training pairs, or trees, are also in the validation files.
        """
        if self.trees:
            # `treebank` loads slowly, and text does not need it.
            from regard.data.treebank import prepare_trees

            report = prepare_trees(
                self.trees,
                out,
                recipe,
                valid_trees=self.valid_trees,
                silver=self.silver,
                silver_share=self.silver_share,
                tokenizer=tokenizer,
                progress=progress,
            )
        else:
            report = prepare_text(
                self.source,
                self.target,
                out,
                recipe,
                valid_sources=self.valid_source,
                valid_targets=self.valid_target,
                mix=self.mix,
                tokenizer=tokenizer,
                workers=workers,
                progress=progress,
            )
        for sentence in report.remarks(self.content.removesuffix("s")):
            remark(sentence)
        return report


NO_FILES = TrainingFiles()


def described(tokenizer: Path, assignments: Sequence[str]) -> TokenizerRecipe:
    """The section [tokenizer] of a recipe for data that this tokenizer encodes.

    The section's vocabulary is the tokenizer's size, but at least 300 and at most 1,000,000. A
    tokenizer of another program counts as "bpe". Raises RegardError if one of `assignments`, the
    values of --set, is invalid or contradicts the tokenizer, and the errors of `open_tokenizer`.
    """
    opened = open_tokenizer(tokenizer)
    entries = opened.entries if isinstance(opened, Tokenizer) else ()
    pieces = any(entry.startswith(CONTINUED) for entry in entries)
    kind: TokenizerKind = "wordpiece" if pieces else "bpe"
    its = TokenizerRecipe(kind=kind, vocabulary=min(max(300, opened.size), 10**6))
    asked = (one for one in assignments if assigned_field(one).startswith("tokenizer."))
    if Recipe(tokenizer=its).set(*asked).tokenizer != its:
        raise RegardError(
            f"{tokenizer}: is a tokenizer ({its.kind}) of {opened.size} entries: leave out "
            "--set tokenizer.*, or leave out --tokenizer to learn another"
        )
    return its


def _refuse_inside(files: TrainingFiles, out: Path) -> None:
    """Raise RegardError if one of the files is in `out`, whose content will be replaced."""
    text = (*files.source, *files.target, *files.valid_source, *files.valid_target)
    for path in (*text, *files.trees, *files.valid_trees, *files.silver):
        if out.resolve() in path.resolve().parents:
            raise RegardError(f"{path}: is in {out}, which will be replaced: choose another --out")


def assigned(assignments: Sequence[str], field: str) -> Any:
    """The value that `assignments` give a field of a recipe, or the field's default.

    `assignments` are strings "section.key=value", as for `Recipe.set`; raises its errors.
    """
    section, key = field.split(".")
    recipe = Recipe().set(*(one for one in assignments if assigned_field(one) == field))
    return getattr(getattr(recipe, section), key)


def prepare_files(
    files: TrainingFiles,
    out: Path,
    *,
    recipe: Recipe | str | None = None,
    assignments: Sequence[str] = (),
    tokenizer: Path | None = None,
    workers: int | None = None,
    progress: Callable[[Progress], object] = lambda _: None,
    remark: Callable[[str], object] = lambda _: None,
) -> Report:
    """Prepare data in `out` by `recipe` or, if it is None, by `files.suited(tokenizer)`.

    `assignments` change the recipe: strings "section.key=value", as for `Recipe.set`. `tokenizer`
    decides the recipe's section [tokenizer]. `progress` is called while text is counted or
    prepared; `remark` is passed to `TrainingFiles.prepare`.

    Raises RegardError if the files exclude one another, are too few, are in `out`, or do not fit
    the recipe. Raises RegardError, too, if `workers` are given for trees. Raises RecipeError for an
    unknown recipe or field, or an invalid value. Also raises the errors of `described`, of
    `TrainingFiles.suited` and of `TrainingFiles.prepare`.
    """
    files.refuse_unfit()
    named = recipe_named(recipe) if isinstance(recipe, str) else recipe
    if files.trees and workers is not None:
        raise RegardError("--workers is for text: trees are read by one process")
    if not files.can_be_prepared:
        raise RegardError(f"{out}: nothing to prepare: give --source and --target, or --trees")
    _refuse_inside(files, out)
    its = {} if tokenizer is None else {"tokenizer": dict(described(tokenizer, assignments))}
    share = assigned(assignments, "data.share")
    chosen = (named or files.suited(tokenizer, share, progress)).merged(its)
    if files.trees:
        chosen = chosen.but(output="trees")
    chosen = chosen.set(*assignments)
    files.refuse_recipe(chosen)
    return files.prepare(
        out, chosen, tokenizer=tokenizer, workers=workers, progress=progress, remark=remark
    )
