"""`regard translate`: text in, text out, in order; to standard output, or to a file in blocks."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.bulk import after_the_first, translate_file
from regard.cli.options import (
    BeamOption,
    InputOption,
    JsonOption,
    PrecisionOption,
    ThreadsOption,
    WindowOption,
)

if TYPE_CHECKING:
    from regard.mending.mend import Mended
    from regard.translation import Translation, Translator

_ModelsArgument = Annotated[
    list[Path],
    typer.Argument(metavar="MODEL...", help="A model or run directory; several work together."),
]
_RetryOption = Annotated[
    bool,
    typer.Option(
        "--retry/--no-retry", help="Search again where a translation repeats words, say, or stops."
    ),
]
_OutOption = Annotated[
    Path | None,
    typer.Option("--out", help="A file to make; if stopped, the same command continues."),
]
_AlphaOption = Annotated[float | None, typer.Option("--alpha", min=0.0, help="Length penalty.")]
_NBestOption = Annotated[
    int, typer.Option("--n-best", min=1, help="Translations of each sentence.")
]
_LongOption = Annotated[
    str, typer.Option("--long", help="split over-long sentences, or refuse them.")
]
_ExactOption = Annotated[
    bool | None,
    typer.Option(
        "--exact/--no-exact",
        help="Make no bit of a translation depend on what shares its batch; the default in fp32.",
    ),
]
_QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Do not show progress (of --out).")
]


@after_the_first()
def translate(
    models: _ModelsArgument,
    input: InputOption = Path("-"),  # noqa: A002
    out: _OutOption = None,
    beam: BeamOption = None,
    alpha: _AlphaOption = None,
    n_best: _NBestOption = 1,
    as_json: JsonOption = False,
    long: _LongOption = "split",
    retry: _RetryOption = True,
    window: WindowOption = 2048,
    precision: PrecisionOption = "fp32",
    exact: _ExactOption = None,
    threads: ThreadsOption = 0,
    quiet: _QuietOption = False,
) -> None:
    """Translate lines of text.

    An empty line gives an empty line. With --n-best each sentence gives up to that many lines, best
    first, as Moses writes them: number from 0 ||| translation ||| score.

    A translation that repeats words, echoes the source or stops early is searched for again, with a
    wider beam and without repetition; those that still look wrong are counted at the end, and named
    in --json. --no-retry leaves the search as the paper has it.

    Several models translate together by the mean of their probabilities. They must have the same
    tokenizer, as runs on the same prepared data have; beam and alpha are the first one's.

    With --out the input is checked, then translated in blocks that are kept as they are finished,
    by as many processes as torchrun starts.

    With --exact a sentence's translation and score are the same to the last bit whatever else is
    translated, in any order, by any number of threads. In fp32 that is so anyway where the
    processor's kernels allow it; --exact tests whether they do.

    Examples:

    - `regard translate runs/x < in.txt > out.txt`
    - `regard translate runs/x --beam 1 --json -i in.txt.gz`
    - `regard translate runs/x1 runs/x2 runs/x3 < in.txt > out.txt`   (an ensemble)
    - `torchrun --nproc-per-node 8 -m regard translate runs/x -i big.en --out big.de`
    """
    from regard.files.lines import read_lines

    _refuse_unfit(out, long)
    translator, precision = _opened(models, precision, exact, threads)
    _set_search(translator, beam, alpha, n_best)
    if out is None and str(input) == "-" and sys.stdin.isatty():
        window = 1  # a person types, and waits for each answer
    writing = _Writing(translator, input, n_best, as_json, long == "split", retry, window)
    if out is None:
        for text in writing.translated(read_lines(input)):
            typer.echo(text)
    else:
        settings = writing.settings(precision, exact)
        translate_file(
            input, out, models, settings, writing.measured, writing.translated, quiet=quiet
        )
    writing.report()


@dataclass(frozen=True)
class _Writing:
    """Translates lines and writes the translations, in the form that the options ask for."""

    translator: "Translator"
    input: Path
    n_best: int
    as_json: bool
    split: bool
    retry: bool
    window: int
    said: list[str] = field(default_factory=list)
    flaws: Counter[str] = field(default_factory=Counter)
    """How many lines were searched for again ("retried"), still look wrong ("wrong"), and why."""

    @property
    def _where(self) -> str:
        return "standard input" if str(self.input) == "-" else str(self.input)

    def translated(self, lines: Iterable[str], first: int = 0) -> Iterator[str]:
        """Yield the text to write for each line; the first line has the number `first`, from 0."""
        lines = iter(lines)
        while some := list(islice(lines, self.window)):
            found = self.translator.stream(
                some,
                n_best=self.n_best,
                split=self.split,
                window=self.window,
                where=self._where,
                first=first + 1,
                warn=self._warn,
            )
            for number, its in enumerate(self._mended(some, list(found)), first):
                yield self._shown(number, its)
            first += len(some)

    def _mended(self, lines: "list[str]", found: "list[list[Translation]]") -> "Iterator[Mended]":
        from regard.mending.mend import Mended, mended

        if not self.retry:
            return map(Mended, found)
        results = mended(self.translator, lines, found)
        for its in results:
            self.flaws.update(["retried"] * its.retried + ["wrong"] * bool(its.flaws))
            self.flaws.update(its.flaws)
        return iter(results)

    def report(self) -> None:
        """Say how many lines were searched for again, and how many still look wrong."""
        from regard.cli.console import note

        counted = dict(self.flaws)
        retried, wrong = counted.pop("retried", 0), counted.pop("wrong", 0)
        which = ", ".join(f"{count} {flaw}" for flaw, count in sorted(counted.items()))
        if retried or wrong:
            note(
                f"{retried} lines were searched for again; {wrong} look wrong"
                + f": {which}" * bool(which)
            )

    def measured(self, lines: list[str], first: int) -> int:
        """Count the lines' source tokens; raises DataError for a line that cannot be translated."""
        return self.translator.measure(
            lines, split=self.split, where=self._where, first=first + 1, warn=self._warn
        )

    def _warn(self, sentence: str) -> None:
        """Note the first sentence that is said; the others are like it."""
        from regard.cli.console import note

        if not self.said:
            note(f"{sentence}, as other such lines are (--long refuse refuses them)")
        self.said.append(sentence)

    def settings(self, precision: str, exact: bool | None) -> dict[str, Any]:
        """Everything that decides what is written, except the model and the input."""
        return {
            **self.translator.recipe.model_dump(),
            "precision": precision,
            "exact": exact,
            "n-best": self.n_best,
            "json": self.as_json,
            "split": self.split,
            "retry": self.retry,
            "window": self.window,
        }

    def _shown(self, number: int, its: "Mended") -> str:
        best = its.translations
        if self.as_json:
            found = [{"text": t.text, "score": round(t.score, 6)} for t in best]
            about = {"flaws": its.flaws, "retried": its.retried}
            return json.dumps({"translations": found, **about}, ensure_ascii=False)
        if self.n_best == 1:
            return _on_one_line(best[0].text)
        return "\n".join(f"{number} ||| {_on_one_line(t.text)} ||| {t.score:.6f}" for t in best)


def _refuse_unfit(out: Path | None, long: str) -> None:
    """Raise RecipeError for a wrong --long, and where processes would share standard output."""
    from regard.errors import RecipeError

    if long not in ("split", "refuse"):
        raise RecipeError(f"--long {long}: it is split or refuse")
    if out is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RecipeError("several processes cannot share standard output: give --out")


def _opened(
    models: Sequence[Path], precision: str, exact: bool | None, threads: int
) -> "tuple[Translator, str]":
    """The translator, and its precision; `auto` is replaced by the precision that it chooses."""
    from regard.decoding import settled
    from regard.machine.devices import keep_freed_memory, set_threads
    from regard.translation import load

    precision = settled(precision)
    set_threads(threads)
    keep_freed_memory()
    return load(*models, precision=precision, exact=exact), precision


def _set_search(
    translator: "Translator", beam: int | None, alpha: float | None, n_best: int
) -> None:
    from regard.cli.console import note
    from regard.errors import RecipeError

    given = {"beam": beam, "alpha": alpha}
    changes = {name: value for name, value in given.items() if value is not None}
    translator.recipe = translator.recipe.but(**changes)
    if n_best > translator.recipe.beam:
        raise RecipeError(
            f"--n-best {n_best} is more than the beam of {translator.recipe.beam}: raise --beam too"
        )
    if translator.one_by_one:  # this depends on the beam
        note("--exact: on this processor sentences must be decoded one at a time, which is slow")


def _on_one_line(text: str) -> str:
    # A trained model never writes a line end, although its vocabulary may be able to.
    return text.replace("\n", " ").replace("\r", " ")
