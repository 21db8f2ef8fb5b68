"""`regard look`: shows where heads attend, as page, figure, text or numbers; or draws the model."""

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from regard.cli.console import json_for_terminal, note
from regard.cli.options import ModelArgument, ThreadsOption
from regard.errors import ModelError, RecipeError, unknown
from regard.files.whole import write_file

if TYPE_CHECKING:
    from regard.encoder_decoder import AttentionKind, EncoderDecoder
    from regard.view.figures import Number
    from regard.view.look import Look

_SentenceArgument = Annotated[
    str | None, typer.Argument(help="The sentence to translate; Figures 1 and 2 need none.")
]
_TargetOption = Annotated[
    str | None, typer.Option("--target", help="A translation to use instead of the model's.")
]
_HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", help="Write a page for the browser; by default look.html."),
]
_TextOption = Annotated[bool, typer.Option("--text", help="Print a heat map.")]
_FigureOption = Annotated[
    int | None,
    typer.Option(
        "--figure",
        min=1,
        max=5,
        help="Draw the paper's Figure 1 or 2 of the model, or 3, 4 or 5 of the sentence.",
    ),
]
_OutOption = Annotated[
    Path | None, typer.Option("--out", help="File of the figure: .svg, .png or .pdf.")
]
_NpzOption = Annotated[Path | None, typer.Option("--npz", help="Write the weights, for NumPy.")]
_JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Write everything as JSON; - is standard output.")
]
_SearchOption = Annotated[
    bool,
    typer.Option("--search", help="Print which hypotheses the search kept and dropped, and why."),
]
_ByWordsOption = Annotated[bool, typer.Option("--by-words", help="Join the pieces of a word.")]
_KindOption = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="Attention to show, or to open the page at: encoder, decoder or cross.",
    ),
]
_LayerOption = Annotated[
    int | None, typer.Option("--layer", min=1, help="Layer to show, from 1; by default the last.")
]
_HeadOption = Annotated[
    list[int] | None,
    typer.Option("--head", min=1, help="Head to show, from 1; may be given again."),
]
_WordOption = Annotated[
    str | None,
    typer.Option(
        "--word", help="The word that attends, or its number, in a page and Figures 3 and 4."
    ),
]


def look(
    model: ModelArgument,
    sentence: _SentenceArgument = None,
    target: _TargetOption = None,
    html: _HtmlOption = None,
    text: _TextOption = False,
    figure: _FigureOption = None,
    out: _OutOption = None,
    npz: _NpzOption = None,
    as_json: _JsonOption = None,
    search: _SearchOption = False,
    by_words: _ByWordsOption = False,
    kind: _KindOption = None,
    layer: _LayerOption = None,
    head: _HeadOption = None,
    word: _WordOption = None,
    threads: ThreadsOption = 0,
) -> None:
    """Look at the attention of one sentence, or at the model (Figures 1 and 2).

    Figure 3 shows one word's weights, Figure 5 shows all words' weights, and Figure 4 shows both.

    Examples:

    - `regard look runs/demo "The dog opened the door because it was hungry."`
    - `regard look runs/demo "The dog sleeps because it is old." --figure 4 --word it`
    - `regard look runs/demo "The cat is big." --text --search`
    - `regard look runs/demo --figure 1 --out model.pdf`
    """
    from regard.machine.devices import set_threads
    from regard.run.model_directory import open_model
    from regard.view.look import look_at

    html = html or (None if any((text, figure, npz, as_json, search)) else Path("look.html"))
    _refuse_unfit(kind, figure, out, search and target is not None)
    _refuse_same_file(text, figure, (html, out, npz, as_json))
    its = {"--kind": kind, "--layer": layer, "--head": head, "--by-words": by_words}
    _refuse_missing(sentence, figure, target, html, text, npz, as_json, search, word, *its.values())
    _refuse_unshown(word, its, figure, (html, npz, as_json), text)
    set_threads(threads)
    opened = open_model(model)
    _refuse_undrawn(opened.network, figure)
    if sentence is None:
        _draw_model(opened.network, figure, out)
        return
    if opened.recipe.task.output != "text":
        raise ModelError(f"{model}: is a parser: look shows the attention of translators")
    found = look_at(opened, sentence, target, by_words=by_words, listen=search)
    view = _View(found, kind, layer, head or [], word)
    view.refuse_unknown(text, html, figure)
    if html:
        view.write_page(html)
    if npz:
        view.write_npz(npz)
    if figure:
        view.write_figure(figure, out, opened.network)
    if as_json:
        view.write_json(as_json)
    if str(as_json) != "-":
        view.print(text)


def _figure_file(number: int | None, out: Path | None) -> Path:
    """The file of a figure: `out` or, without it, figure-`number`.svg."""
    return out or Path(f"figure-{number}.svg")


def _draw_model(model: "EncoderDecoder", number: int | None, out: Path | None) -> None:
    """Write Figure 1 or 2 of a Transformer; the file's ending, such as .svg, names the format."""
    from regard.transformer import Transformer
    from regard.view.architecture import architecture
    from regard.view.multihead import multihead

    assert isinstance(model, Transformer)
    path = _figure_file(number, out)
    write_file(path, (architecture if number == 1 else multihead)(model, path.suffix.lstrip(".")))
    note(f"{path}: Figure {number}")


@dataclass(frozen=True)
class _View:
    """The attention weights of a sentence, and the options that say which weights are shown."""

    found: "Look"
    kind: str | None
    layer: int | None
    """The layer, counted from 1; None means the last."""
    heads: list[int]
    """Heads, counted from 1. If the list is empty, Figures 4 and 5 show the two heads of lowest
    entropy; a page, a heat map and Figure 3 show all heads."""
    word: str | None

    def layer_of(self, kind: "AttentionKind") -> int:
        """The chosen layer, counted from 0; raises RecipeError if `kind` has fewer layers."""
        layers = len(self.found.weights[kind])
        if self.layer is not None and self.layer > layers:
            raise RecipeError(f"--layer {self.layer}: this model has {layers}")
        return (self.layer or layers) - 1

    def heads_of(self, kind: "AttentionKind") -> list[int]:
        """The heads in `heads`, counted from 0; [] if none is chosen.

        Raises RecipeError if a number is higher than the number of heads of `kind`.
        """
        every = self.found.weights[kind].shape[1]
        for number in self.heads:
            if number > every:
                raise RecipeError(f"--head {number}: this model has {every}")
        return [number - 1 for number in self.heads]

    def place(self) -> int | None:
        """The index, from 0, of the query (the attending position) that `word` names, or None.

        `word` is the text of a query or, if no query has this text, the number of a query, from 1.
        If several queries have the text, the first is meant. Returns None if `word` is None. Raises
        RecipeError if no query matches, and ModelError if the model lacks the kind in --kind.
        """
        queries, word = self.found.queries(self.found.kind(self.kind)), self.word
        if word is None:
            return None
        for names in (queries, [str(number) for number in range(1, len(queries) + 1)]):
            if word in names:
                return names.index(word)
        raise unknown("word", word, list(dict.fromkeys(queries)))

    def refuse_unknown(self, text: bool, html: Path | None, figure: int | None) -> None:
        """Raise RecipeError, before anything is written, for an unknown word, layer or head.

        All kinds of attention to be shown are tested. If --kind is not given, a heat map (`text`)
        shows encoder-decoder attention, and other output shows the encoder's self-attention. If the
        model lacks it, its first kind is shown. Raises ModelError if it lacks the kind in --kind.
        """
        self.place()
        kinds = [self.found.kind(self.kind, "cross")] if text else []
        kinds += [self.found.kind(self.kind)] if html or (figure or 0) > 2 or not text else []
        for kind in kinds:
            self.layer_of(kind)
            self.heads_of(kind)

    def write_page(self, path: Path) -> None:
        """Write a page for the browser."""
        from regard.view.page import attention_page

        of = self.found.kind(self.kind)
        chosen = self.layer_of(of), self.heads_of(of), self.place()
        write_file(path, attention_page(self.found, of, *chosen))
        note(f"{path}: open it in a browser")

    def write_npz(self, path: Path) -> None:
        """Write tokens, weights and log-probabilities as arrays that NumPy reads without pickle."""
        import numpy as np

        arrays: dict[str, Any] = {"log_p": np.array(self.found.log_p, np.float32)}
        for name in ("source", "read", "written"):
            arrays[name] = np.array(getattr(self.found, name))
        for kind, weights in self.found.weights.items():
            arrays[f"{kind}_attention"] = weights
        file = io.BytesIO()
        np.savez_compressed(file, **arrays)
        write_file(path, file.getvalue())

    def write_figure(self, number: int, out: Path | None, model: "EncoderDecoder") -> None:
        """Write a figure to `out` (.svg, .png or .pdf), or to figure-`number`.svg without `out`."""
        from regard.view.figures import figure, sharpest

        if number < 3:
            _draw_model(model, number, out)
            return
        path = _figure_file(number, out)
        of = self.found.kind(self.kind)
        place = None if number == 5 else self.place()
        heads = self.heads_of(of)
        if not heads:
            every = self.found.weights[of].shape[1]
            heads = sharpest(self.found, of, self.layer_of(of), place, every if number == 3 else 2)
        its = self.found, cast("Number", number), path.suffix.lstrip("."), of, self.layer_of(of)
        write_file(path, figure(*its, heads, place))
        note(f"{path}: Figure {number}")

    def write_json(self, path: Path) -> None:
        """Write all of `found` as JSON to the file `path`; if `path` is "-", to standard output."""
        content = json_for_terminal(self.found.as_json())
        if str(path) == "-":
            typer.echo(content)
        else:
            write_file(path, content + "\n")

    def print(self, text: bool) -> None:
        """Print the translation, a heat map if `text` is True, and the search, if recorded."""
        from regard.view.heat import heat

        typer.echo(" ".join(self.found.translation.split()), color=True)
        if text:
            kind = self.found.kind(self.kind, "cross")
            heads = self.heads_of(kind) or range(self.found.weights[kind].shape[1])
            typer.echo("\n" + heat(self.found, kind, self.layer_of(kind), heads))
        if self.found.account:
            typer.echo(f"\n{self.found.account}")


def _refuse_unfit(
    kind: str | None, figure: int | None, out: Path | None, nothing_to_search: bool
) -> None:
    """Raise RecipeError for an unknown --kind, an unusable --out, or --search with --target."""
    from regard.view.drawing import FORMATS
    from regard.view.recording import KINDS

    if kind is not None and kind not in KINDS:
        raise RecipeError(f"--kind {kind}: it is {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if figure is None and out is not None:
        raise RecipeError(f"--out {out}: it is for --figure; a page is --html FILE")
    if out is not None and out.suffix.lstrip(".") not in FORMATS:
        raise RecipeError(f"--out {out}: a figure ends in .svg, .png or .pdf")
    if nothing_to_search:
        raise RecipeError("--search: with --target there is no search; leave one of them out")


def _refuse_same_file(text: bool, figure: int | None, outputs: Sequence[Path | None]) -> None:
    """Raise RecipeError if two outputs share a file or stdout, or if --html or --npz is "-"."""
    html, out, npz, as_json = outputs
    drawing = _figure_file(figure, out) if figure else None
    files = [file for file in (html, drawing, npz, as_json) if file is not None]
    if "-" in map(str, (html, npz)):
        raise RecipeError("only --json writes to standard output (-): give --html and --npz a file")
    if text and str(as_json) == "-":
        raise RecipeError("--json - and --text both write to standard output: give --json a file")
    if len({*map(os.path.realpath, files)}) < len(files):
        raise RecipeError("two of --html, --out, --npz and --json name one file: name several")


def _refuse_undrawn(model: "EncoderDecoder", figure: int | None) -> None:
    """Raise ModelError if Figure 1 or 2 is asked for, and the model is not a Transformer."""
    from regard.transformer import Transformer

    if figure in (1, 2) and not isinstance(model, Transformer):
        raise ModelError(f"--figure {figure} draws a Transformer; this model is of another family")


def _refuse_unshown(
    word: str | None,
    chosen: Mapping[str, object],
    figure: int | None,
    files: Sequence[Path | None],
    text: bool,
) -> None:
    """Raise RecipeError if a figure lacks its --word, or if an option would change no output."""
    page, *numbers = files
    if figure in (3, 4) and word is None:
        raise RecipeError(f"--figure {figure} shows one word: give it with --word")
    if word is not None and figure not in (3, 4) and not page:
        raise RecipeError(f"--word {word}: it is for --html, and Figures 3 and 4: leave it out")
    written = {"--by-words"} if any(numbers) else set()
    given = sorted(filter(chosen.get, chosen.keys() - written))
    if given and not (page or text or figure in (3, 4, 5)):
        raise RecipeError(f"{given[0]}: it is for --html, --text and Figures 3 to 5: leave it out")


def _refuse_missing(sentence: str | None, figure: int | None, *others: object) -> None:
    """Raise RecipeError if no sentence is given, although a sentence is needed.

    Figures 1 and 2 need no sentence if the values `others` of other options are all None or False.
    """
    if sentence is None and (figure not in (1, 2) or any(o not in (None, False) for o in others)):
        raise RecipeError("no sentence: give one after the model; only --figure 1 and 2 need none")
