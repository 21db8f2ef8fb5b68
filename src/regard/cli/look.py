"""`regard look`: where every head attends, as a page, a figure, text or numbers."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from regard.view.figures import Number
    from regard.view.look import Look
    from regard.view.recording import AttentionKind


def look(
    model: Annotated[Path, typer.Argument(help="A model or run directory.")],
    sentence: Annotated[str, typer.Argument(help="The sentence to translate.")],
    target: Annotated[
        str | None, typer.Option(help="Its translation, if not the model's own.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page for the browser; look.html if nothing is asked for."),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Print a heat map.")] = False,
    figure: Annotated[
        int | None, typer.Option(min=3, max=5, help="Draw the paper's Figure 3, 4 or 5.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File of the figure: .svg, .png or .pdf.")
    ] = None,
    npz: Annotated[Path | None, typer.Option(help="Write the weights, for NumPy.")] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", help="Write everything as JSON; - is standard output.")
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Tell what lived and died in the search, and why.")
    ] = False,
    by_words: Annotated[
        bool, typer.Option("--by-words", help="Join the pieces of a word.")
    ] = False,
    kind: Annotated[
        str | None,
        typer.Option(help="Attention to show, or to open the page at: encoder, decoder or cross."),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(min=1, help="Its layer, from 1; the last if none is given.")
    ] = None,
    head: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Its head, from 1; may be given again."),
    ] = None,
    word: Annotated[
        str | None,
        typer.Option(help="The word that attends, in a page and Figures 3 and 4, or its place."),
    ] = None,
    threads: Annotated[int, typer.Option(min=0, help="Processor cores; 0 is all.")] = 0,
) -> None:
    """Look at the attention of one sentence.

    The weights are those of equation (1), in fp32: of the model's own translation, or of the one
    you give. Figure 3 shows one word and every head; Figure 4 the sharpest head, then that and the
    next sharpest for one word; Figure 5 the two sharpest heads. --head chooses others.

    Examples:

    `regard look runs/demo "The dog opened the door because it was hungry."`

    `regard look runs/demo "The dog sleeps because it is old." --figure 4 --word it`

    `regard look runs/demo "The cat is big." --text --search`
    """
    from regard.cli.console import note
    from regard.files.whole import write_file
    from regard.machine.devices import set_threads
    from regard.run.model_directory import open_model
    from regard.view.heat import heat
    from regard.view.look import look_at
    from regard.view.page import attention_page

    _refuse_what_does_not_fit(kind, figure, out, word, search and target is not None)
    set_threads(threads)
    found = look_at(open_model(model), sentence, target, by_words=by_words, listen=search)
    at, heads = _chosen(found, layer, head)
    if not (html or text or figure or npz or as_json or search):
        html = Path("look.html")
    if html:
        of = cast("AttentionKind", kind or "encoder")
        held = None if word is None else _place(found.queries(of), word)
        write_file(html, attention_page(found, of, at, heads, held))
        note(f"{html}: open it in a browser")
    if npz:
        write_file(npz, _npz(found))
    if figure:
        out = out or Path(f"figure-{figure}.svg")
        write_file(out, _figure(found, figure, out, kind or "encoder", at, heads, word))
        note(f"{out}: Figure {figure}")
    if as_json:
        content = json.dumps(found.as_json(), ensure_ascii=False)
        if str(as_json) == "-":
            typer.echo(content)
            return
        write_file(as_json, content + "\n")
    typer.echo(" ".join(found.translation.split()))
    if text:
        every = range(found.weights["cross"].shape[1])
        typer.echo("\n" + heat(found, cast("AttentionKind", kind or "cross"), at, heads or every))
    if found.account:
        typer.echo(f"\n{found.account}")


def _refuse_what_does_not_fit(
    kind: str | None,
    figure: int | None,
    out: Path | None,
    word: str | None,
    nothing_to_search: bool,
) -> None:
    """Before anything is opened."""
    from regard.errors import RecipeError
    from regard.view.figures import FORMATS
    from regard.view.recording import KINDS

    if kind is not None and kind not in KINDS:
        raise RecipeError(f"--kind {kind}: it is {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if figure is None and out is not None:
        raise RecipeError(f"--out {out}: it is for --figure; a page is --html FILE")
    if out is not None and out.suffix.lstrip(".") not in FORMATS:
        raise RecipeError(f"--out {out}: a figure ends in .svg, .png or .pdf")
    if figure in (3, 4) and word is None:
        raise RecipeError(f"--figure {figure} shows one word: give it with --word")
    if nothing_to_search:
        raise RecipeError("--search: with --target there is no search; leave one of them out")


def _chosen(found: "Look", layer: int | None, head: list[int] | None) -> tuple[int, list[int]]:
    """The layer, or the last; and the heads, or none. All counted from 0, and there."""
    from regard.errors import RecipeError

    layers, heads = found.weights["encoder"].shape[:2]
    asked = [("layer", layer or layers, layers)]
    asked += [("head", number, heads) for number in head or []]
    for name, number, most in asked:
        if number > most:
            raise RecipeError(f"--{name} {number}: this model has {most}")
    return (layer or layers) - 1, [number - 1 for number in head or []]


def _figure(
    found: "Look",
    number: int,
    out: Path,
    kind: str,
    layer: int,
    heads: list[int],
    word: str | None,
) -> bytes:
    from regard.view.figures import figure, sharpest

    of = cast("AttentionKind", kind)
    place = None if word is None or number == 5 else _place(found.queries(of), word)
    if not heads:
        every = found.weights[of].shape[1]
        heads = sharpest(found, of, layer, place, every if number == 3 else 2)
    form = out.suffix.lstrip(".")
    return figure(found, cast("Number", number), form, of, layer, heads, place)


def _place(queries: Sequence[str], word: str) -> int:
    """Of a word, the first of its kind; or its number."""
    from regard.errors import unknown

    if word in queries:
        return queries.index(word)
    if word.isdecimal() and 1 <= int(word) <= len(queries):
        return int(word) - 1
    raise unknown("word", word, list(dict.fromkeys(queries)))


def _npz(found: "Look") -> bytes:
    """Arrays by name; nothing in them is pickled."""
    import numpy as np

    arrays: dict[str, Any] = {"log_p": np.array(found.log_p, np.float32)}
    for name in ("source", "read", "written"):
        arrays[name] = np.array(getattr(found, name))
    for kind, weights in found.weights.items():
        arrays[f"{kind}_attention"] = weights
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()
