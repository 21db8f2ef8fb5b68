"""`regard translate`: translates lines in order, to standard output, or to a file in blocks."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.bulk import after_the_first, translate_file
from regard.cli.console import note
from regard.cli.options import (
    BeamOption,
    EngineOption,
    InputOption,
    JsonOption,
    PrecisionOption,
    ThreadsOption,
    refuse_engine,
    window_option,
)
from regard.errors import RecipeError
from regard.machine.cores import started_together

if TYPE_CHECKING:
    from regard.cli.translating import SentenceLines
    from regard.translation import Translator

_ModelsArgument = Annotated[
    list[Path],
    typer.Argument(metavar="MODEL...", help="A model or run directory; several work together."),
]
_ParagraphsOption = Annotated[
    str | None,
    typer.Option(
        "--paragraphs",
        metavar="LANGUAGE",
        help="Cut lines into sentences by their language's rules: en, ko; others as English.",
    ),
]
_AlignmentsOption = Annotated[
    bool,
    typer.Option("--alignments", help="Add pairs of words that belong together: ||| 0-0 1-2."),
]
_RetryOption = Annotated[
    bool,
    typer.Option(
        "--retry/--no-retry", help="Search again if a translation repeats words, for example."
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
    str,
    typer.Option(
        "--long", help="split: divide sentences that are too long. refuse: end with an error."
    ),
]
_LongerOption = Annotated[
    bool,
    typer.Option("--longer", help="Do not split sentences that are longer than in training."),
]
_ExactOption = Annotated[
    bool | None,
    typer.Option(
        "--exact/--no-exact",
        help="Give a sentence the same translation to the last bit in any batch.",
    ),
]
_WindowOption = Annotated[int | None, window_option("on a GPU without --out")]
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
    longer: _LongerOption = False,
    paragraphs: _ParagraphsOption = None,
    alignments: _AlignmentsOption = False,
    retry: _RetryOption = True,
    window: _WindowOption = None,
    precision: PrecisionOption = "fp32",
    exact: _ExactOption = None,
    engine: EngineOption = None,
    threads: ThreadsOption = 0,
    quiet: _QuietOption = False,
) -> None:
    """Translate lines of text.

    An empty line gives an empty line. With --n-best, each sentence gives up to that many lines, the
    best first, in the format of Moses: number from 0 ||| translation ||| score.

    A translation that repeats words, echoes the source or stops early is searched for again, with a
    wider beam. If it still looks wrong, it is counted; --json marks it. --no-retry searches once.

    Several models translate together by the mean of their probabilities, with beam and alpha of the
    first model. They must have the same tokenizer, as runs on the same prepared data have.

    With --out, the input is checked, then translated in blocks by as many processes as torchrun
    starts; finished blocks are kept.

    With --exact, no bit of a translation or its score depends on other lines or the thread count.
    In fp32 on a CPU, this usually holds without --exact, too; --exact makes sure of it.

    With --engine, CTranslate2 or ONNX Runtime computes a model of `regard export`.

    Examples:

    - `regard translate runs/x < in.txt > out.txt`
    - `regard translate runs/x --beam 1 --json -i in.txt.gz`
    - `regard translate runs/x --paragraphs en < letter.txt`   (lines of several sentences)
    - `regard translate runs/x1 runs/x2 runs/x3 < in.txt > out.txt`   (an ensemble)
    - `torchrun --nproc-per-node 8 -m regard translate runs/x -i big.en --out big.de`
    """
    from regard.cli.translating import ParagraphLines, SentenceLines

    _refuse_unfit(out, long, n_best, paragraphs)
    _refuse_unaligned(alignments, n_best, paragraphs, engine)
    translator, precision = _opened(models, engine, precision, exact, threads)
    _set_search(translator, beam, alpha, n_best, longer)
    _refuse_unseen(alignments, translator, models[0])
    lines = _window(translator, window, input, out)
    options = n_best, as_json, long == "split", retry, alignments, lines, paragraphs or ""
    writing = (ParagraphLines if paragraphs else SentenceLines)(translator, input, *options)
    settings = writing.settings(precision, exact) | ({"longer": True} if longer else {})
    _write(writing, out, models, settings, quiet)


def _window(translator: "Translator", wanted: int | None, source: Path, out: Path | None) -> int:
    """The number of lines to read and decode together: `wanted` or, if None, a default.

    The default suits the device, with two exceptions. If the lines are typed on a terminal and
    --out is not given, the default is 1, so that each line is answered at once. With --out, the
    default is the same on every device, because other machines may share the work or continue it.
    """
    from regard.equations import Arithmetic

    if wanted is None and out is not None:
        wanted = Arithmetic.window
    elif wanted is None and str(source) == "-" and sys.stdin.isatty():
        wanted = 1
    return translator.window_of(wanted)


def _write(
    writing: "SentenceLines",
    out: Path | None,
    models: Sequence[Path],
    settings: dict[str, Any],
    quiet: bool,
) -> None:
    from regard.files.lines import read_lines

    if out is None:
        for text in writing.translated(read_lines(writing.input)):
            typer.echo(text, color=True)  # with color=True, typer keeps escape sequences
        writing.report(writing.read)
    else:
        given = writing.input, out, models, settings
        lines = translate_file(*given, writing.measured, writing.translated, quiet=quiet)
        writing.report(lines)


def _refuse_unfit(out: Path | None, long: str, n_best: int, paragraphs: str | None) -> None:
    """Raise RecipeError for invalid options, and for options that exclude each other.

    Raises RecipeError, too, if several processes would write to standard output.
    """
    if paragraphs is not None and not re.fullmatch("[a-z]{2,3}", paragraphs):
        raise RecipeError(f"--paragraphs {paragraphs}: give the code of a language: en, de, ko")
    if paragraphs:
        from regard.text.scripts import refuse_country

        refuse_country(paragraphs)
    if paragraphs is not None and n_best > 1:
        raise RecipeError("--paragraphs writes one translation of a line: leave out --n-best")
    if long not in ("split", "refuse"):
        raise RecipeError(f"--long {long}: it is split or refuse")
    if out is None and started_together() > 1:
        raise RecipeError("several processes cannot share standard output: give --out")


def _refuse_unaligned(
    alignments: bool, n_best: int, paragraphs: str | None, engine: str | None
) -> None:
    """Raise RecipeError if --alignments is given with an option that excludes it."""
    if alignments and (paragraphs is not None or n_best > 1):
        raise RecipeError("--alignments are of single sentences: leave out --paragraphs, --n-best")
    if alignments and engine is not None:
        raise RecipeError(
            f"--alignments: --engine {engine} shows no attention: leave one of them out"
        )


def _refuse_unseen(alignments: bool, translator: "Translator", model: Path) -> None:
    """Raise RecipeError for --alignments of a model without encoder-decoder attention."""
    if alignments and "cross" not in translator.network.attentions():
        raise RecipeError(f"--alignments: {model} has no encoder-decoder attention to show them")


def _refuse_text(models: Sequence[Path]) -> None:
    """Raise RecipeError if an argument after the first model seems to be a file of text."""
    for path in models[1:]:
        if path.is_file() and path.suffix not in (".json", ".safetensors", ".toml"):
            raise RecipeError(f"{path}: is a file: text goes with -i {path}, or < {path}")


def _opened(
    models: Sequence[Path], engine: str | None, precision: str, exact: bool | None, threads: int
) -> "tuple[Translator, str]":
    """The translator, and the precision in which it computes.

    "auto" and "fastest" are replaced by the precision that they choose. With an engine, `precision`
    is returned unchanged: `regard export` has chosen the precision of the model.
    """
    from regard.machine.devices import keep_freed_memory, set_threads

    _refuse_text(models)
    if engine is not None:
        refuse_engine(models, precision, exact, allowed=("fp32", "fastest"))
        from regard.engines.opening import load_exported

        set_threads(threads)
        return load_exported(models[0], engine), precision
    from regard.precision import settled
    from regard.translation import load

    precision = settled(precision)
    set_threads(threads)
    keep_freed_memory()
    return load(*models, precision=precision, exact=exact), precision


def _set_search(
    translator: "Translator", beam: int | None, alpha: float | None, n_best: int, longer: bool
) -> None:
    if longer:
        translator.accept_longer()
    given = {"beam": beam, "alpha": alpha}
    changes = {name: value for name, value in given.items() if value is not None}
    translator.recipe = translator.recipe.but(**changes)
    if n_best > translator.recipe.beam:
        raise RecipeError(
            f"--n-best {n_best} is more than the beam of {translator.recipe.beam}: raise --beam too"
        )
    translator.refuse_other_search()
    if translator.one_by_one:  # `one_by_one` depends on the beam, which is set above
        note("--exact: here, sentences must be decoded one at a time, which is slow")
