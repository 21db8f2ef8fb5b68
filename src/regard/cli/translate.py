"""`regard translate`: text in, text out, in order; to standard output, or to a file in blocks."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.bulk import after_the_first, translate_file

if TYPE_CHECKING:
    from regard.translation import Translation, Translator


@after_the_first()
def translate(
    model: Annotated[Path, typer.Argument(help="A model or run directory.")],
    input: Annotated[  # noqa: A002
        Path, typer.Option("--input", "-i", help="Text, one sentence a line; - is standard input.")
    ] = Path("-"),
    out: Annotated[
        Path | None, typer.Option(help="A file to make; if stopped, the same command goes on.")
    ] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, help="Hypotheses kept alive; 1 is greedy.")
    ] = None,
    alpha: Annotated[float | None, typer.Option(min=0.0, help="Length penalty.")] = None,
    n_best: Annotated[int, typer.Option(min=1, help="Translations of each sentence.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines with scores.")] = False,
    split: Annotated[
        bool, typer.Option("--split", help="Split over-long sentences, not refuse them.")
    ] = False,
    window: Annotated[
        int,
        typer.Option(
            min=1, max=10**6, help="Lines read, sorted by length and translated together."
        ),
    ] = 2048,
    precision: Annotated[str, typer.Option(help="fp32, bf16, int8 or auto.")] = "fp32",
    exact: Annotated[
        bool | None,
        typer.Option(
            "--exact/--no-exact",
            help="What shares a batch changes no bit of a translation; the default in fp32.",
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=0, help="Processor cores; 0 is all.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress (of --out).")] = False,
) -> None:
    """Translate lines of text.

    An empty line gives an empty line. With --n-best each sentence gives up to that many lines, best
    first, as Moses writes them: number from 0 ||| translation ||| score.

    With --out the input is checked, then translated in blocks that are kept as they are finished,
    by as many processes as torchrun starts.

    With --exact a sentence's translation and score are the same to the last bit whatever else is
    translated, in any order, by any number of threads. In fp32 that is so anyway where the
    processor's kernels allow it; --exact tries whether they do.

    Examples:

    `regard translate runs/x < in.txt > out.txt`

    `regard translate runs/x --beam 1 --json -i in.txt.gz`

    `torchrun --nproc-per-node 8 -m regard translate runs/x -i big.en --out big.de`
    """
    from regard.decoding import settled
    from regard.errors import RecipeError
    from regard.files.lines import read_lines
    from regard.machine.devices import keep_freed_memory, set_threads
    from regard.translation import load

    precision = settled(precision)
    if out is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RecipeError("several processes cannot share standard output: give --out")
    set_threads(threads)
    keep_freed_memory()
    translator = load(model, precision=precision, exact=exact)
    _set_search(translator, beam, alpha, n_best)
    where = "standard input" if str(input) == "-" else str(input)
    if out is None and str(input) == "-" and sys.stdin.isatty():
        window = 1  # somebody types, and waits

    def translated(lines: Iterable[str], first: int = 0) -> Iterator[str]:
        found = translator.stream(lines, n_best=n_best, split=split, window=window, where=where)
        for number, best in enumerate(found, first):
            yield _shown(number, best, as_json=as_json, n_best=n_best)

    def measured(lines: list[str], first: int) -> int:
        return translator.measure(lines, split=split, where=where, first=first + 1)

    if out is None:
        for text in translated(read_lines(input)):
            typer.echo(text)
        return
    settings = {
        **translator.recipe.model_dump(),
        "precision": precision,
        "exact": exact,
        "n-best": n_best,
        "json": as_json,
        "split": split,
        "window": window,
    }
    translate_file(input, out, model, settings, measured, translated, quiet=quiet)


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
    if translator.one_by_one:  # whether it is depends on the beam
        note("--exact: the kernels here want it sentence by sentence, which is slow")


def _shown(number: int, best: "list[Translation]", *, as_json: bool, n_best: int) -> str:
    if as_json:
        found = [{"text": t.text, "score": round(t.score, 6)} for t in best]
        return json.dumps({"translations": found}, ensure_ascii=False)
    if n_best == 1:
        return _on_one_line(best[0].text)
    return "\n".join(f"{number} ||| {_on_one_line(t.text)} ||| {t.score:.6f}" for t in best)


def _on_one_line(text: str) -> str:
    # No trained model writes a line's end inside a line, but its symbols can spell one.
    return text.replace("\n", " ").replace("\r", " ")
