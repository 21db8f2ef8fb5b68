"""`regard score`: compares translations with references, or trees with those of a treebank."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from regard.amounts import count_of
from regard.cli.console import note
from regard.errors import DataError, RecipeError

if TYPE_CHECKING:
    from regard.recipe import BleuTokenizer
    from regard.score.bleu import Figure

_METRICS = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}
_USUAL = ("13a", "intl")
"""Tokenizers for BLEU that do not suit Korean, or text without blanks such as Chinese or Thai."""
_HypothesisArgument = Annotated[
    Path,
    typer.Argument(
        help="Translations, one sentence a line; - is standard input. With --trees: gold trees."
    ),
]
_TestArgument = Annotated[Path | None, typer.Argument(help="With --trees: the trees to score.")]
_ReferenceOption = Annotated[
    list[Path] | None,
    typer.Option("--reference", "-r", help="A reference for each line; may be given again."),
]
_TokenizerOption = Annotated[
    str,
    typer.Option(
        "--tokenizer",
        help="How BLEU cuts words: 13a, intl, zh, ja-mecab, ko-mecab, char or none.",
    ),
]
_AgainstOption = Annotated[
    list[Path] | None,
    typer.Option("--against", help="Translations by another system, to compare with."),
]
_IntervalOption = Annotated[
    bool, typer.Option("--interval", help="Print 95 % intervals, by bootstrap.")
]
_ReportOption = Annotated[
    bool,
    typer.Option(
        "--report",
        help="Print five scores, explained, with intervals; one is BLEU as in the paper.",
    ),
]
_LanguageOption = Annotated[
    str | None,
    typer.Option(
        "--language",
        help="Language of the text, such as de, for the words of bleu_paper; with --report. "
        "Without it, the ending of the reference's name, or else German.",
    ),
]
_StepsOption = Annotated[
    str | None,
    typer.Option(
        "--steps",
        help="Steps that prepare the text for bleu_paper: normalise, tokenise and split, separated "
        "by commas, or none. By default tokenise,split, as in the paper, or none if the text looks "
        "tokenised.",
    ),
]
_ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--model", help="Report how likely this model finds each translation; with --source."
    ),
]
_SourceOption = Annotated[
    Path | None,
    typer.Option("--source", "-s", help="The text that was translated, line by line."),
]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_TreesOption = Annotated[bool, typer.Option("--trees", help="Score bracketed trees.")]
_ParamsOption = Annotated[
    str | None,
    typer.Option(
        "--params", "-p", help="A parameter file of EVALB, instead of the built-in COLLINS.prm."
    ),
]
_MaxErrorsOption = Annotated[
    int | None,
    typer.Option(
        "--max-errors", "-e", help="Give up after more errors than this (overrides MAX_ERROR)."
    ),
]
_CutoffOption = Annotated[
    int | None,
    typer.Option(
        "--cutoff", "-c", help="Longest sentence in the second summary (overrides CUTOFF_LEN)."
    ),
]
_SummaryOption = Annotated[bool, typer.Option("--summary", help="No row for each sentence.")]


def score(
    hypothesis: _HypothesisArgument,
    test: _TestArgument = None,
    reference: _ReferenceOption = None,
    tokenizer: _TokenizerOption = "13a",
    report: _ReportOption = False,
    against: _AgainstOption = None,
    interval: _IntervalOption = False,
    language: _LanguageOption = None,
    steps: _StepsOption = None,
    model: _ModelOption = None,
    source: _SourceOption = None,
    as_json: _JsonOption = False,
    trees: _TreesOption = False,
    params: _ParamsOption = None,
    max_errors: _MaxErrorsOption = None,
    cutoff: _CutoffOption = None,
    summary: _SummaryOption = False,
) -> None:
    """Score detokenised translations: BLEU, chrF and TER, with sacreBLEU's signatures.

    With --model, each line shows how likely a translation is: the score by which regard translate
    ranks it, its log P, and the number of its pieces. With --trees, give two files with one tree on
    each line: first the gold trees, then the trees to score. Brackets are counted and printed as by
    EVALB. After too many errors, the exit status is 1, and no summary is printed; with --json, null
    is printed.

    Examples:

    - `regard translate runs/x < in.txt | regard score - --reference ref.txt`
    - `regard score out.de -r ref.de --report --against other.de`   (is the difference chance?)
    - `regard score out.txt --reference ref-1.txt --reference ref-2.txt --json`
    - `regard score out.zh --reference ref.zh --tokenizer zh`
    - `regard score out.txt --model runs/x --source in.txt`   (a line each: score, log P, pieces)
    - `regard score --trees gold.trees test.trees -e 1000 --json`
    """
    if not trees:
        _refuse_evalb(test, (params, max_errors, cutoff, summary))
    other = any((trees, model, source))
    _refuse_mixed(report, any((against, interval)), language or steps, other, tokenizer)
    if trees:
        from regard.cli.brackets import score_trees

        if test is None or any((reference, model, source)):
            raise DataError("--trees takes two files, gold and test, and no --reference or --model")
        score_trees(hypothesis, test, params, max_errors, cutoff, as_json, rows=not summary)
    elif model or source:
        _score_by_model(model, source, hypothesis, reference, as_json)
    elif not reference:
        raise DataError("missing option --reference / -r: see regard score --help")
    elif report:
        _report([hypothesis, *(against or [])], reference, tokenizer, language, steps, as_json)
    else:
        _score_text([hypothesis, *(against or [])], reference, tokenizer, interval, as_json)


def _refuse_mixed(
    report: bool, compared: bool, about: str | None, other: bool, tokenizer: str
) -> None:
    if tokenizer != "13a" and other:
        raise DataError(f"--tokenizer {tokenizer}: it is for BLEU, which needs a --reference")
    if (report or compared) and other:
        raise DataError("--report, --against and --interval go with a --reference")
    if about and not report:
        raise DataError("--language and --steps are for bleu_paper: add --report")


def _refuse_evalb(test: Path | None, options: tuple[object, ...]) -> None:
    """Raise DataError for a second file or an option of EVALB; both are only for --trees."""
    if test:
        raise DataError(
            f"a reference goes with --reference {test}; two files of trees with --trees"
        )
    if options != (None, None, None, False):
        raise DataError("the options of EVALB go with --trees: add it")


def _score_text(
    systems: list[Path], references: list[Path], tokenizer: str, interval: bool, as_json: bool
) -> None:
    from dataclasses import asdict

    from regard.score.bleu import compare_translations, score_translations

    kind = _bleu_tokenizer(tokenizer)
    translations, by_reference = _texts(systems, references, usual=kind in _USUAL)
    if interval or len(systems) > 1:
        found = compare_translations(translations, by_reference, kind)
        _show_compared([str(path) for path in systems], found, as_json)
        return
    scores = score_translations(translations[0], by_reference, kind)
    if as_json:
        typer.echo(json.dumps(asdict(scores)))
        return
    for field, name in _METRICS.items():
        typer.echo(f"{name:<5} {getattr(scores, field):6.2f}  {scores.signatures[field]}")


def _report(
    systems: list[Path],
    references: list[Path],
    tokenizer: str,
    language: str | None,
    steps: str | None,
    as_json: bool,
) -> None:
    from regard.cli.bleu_report import chosen_language, chosen_steps, print_report

    kind = _bleu_tokenizer(tokenizer)
    if kind == "none":
        raise RecipeError("--tokenizer none: its BLEU has no place in --report: leave out --report")
    asked = chosen_steps(steps)
    spoken = chosen_language(language, references[0])
    translations, by_reference = _texts(systems, references, usual=kind in _USUAL)
    names = [str(path) for path in systems]
    print_report(names, translations, by_reference, spoken, asked, kind, as_json)


def _bleu_tokenizer(name: str) -> "BleuTokenizer":
    from regard.recipe import BleuTokenizer

    if name not in (names := get_args(BleuTokenizer)):
        raise RecipeError(f"--tokenizer {name}: it is {', '.join(names[:-1])} or {names[-1]}")
    return cast("BleuTokenizer", name)


def _texts(
    systems: list[Path], references: list[Path], usual: bool
) -> tuple[list[list[str]], list[list[str]]]:
    """The lines of each file of `systems`, and the lines of each file of `references`.

    `usual` says whether BLEU uses the tokenizer 13a or intl. If `usual` is True and the first
    reference needs another tokenizer, this function writes a note. It also writes a note if the
    files differ in their Unicode normalization. Raises DataError as `_aligned` does.
    """
    from regard.cli.remarks import on_forms, on_words
    from regard.files.lines import shown_name

    texts = _aligned(*systems, *references)
    translations, by_reference = texts[: len(systems)], texts[len(systems) :]
    if usual and (remark := on_words(by_reference[0])):
        note(f"{shown_name(references[0])}: {remark}")
    if found := on_forms(texts):
        number, remark = found
        note(f"{shown_name([*systems, *references][number])}: {remark}")
    return translations, by_reference


def _show_compared(
    names: list[str], compared: "dict[str, tuple[list[Figure], str]]", as_json: bool
) -> None:
    from dataclasses import asdict

    from regard.cli.bleu_report import figure_line

    if as_json:
        signatures = {field: signature for field, (_, signature) in compared.items()}
        shown = [
            {"name": name} | {field: asdict(figures[i]) for field, (figures, _) in compared.items()}
            for i, name in enumerate(names)
        ]
        typer.echo(json.dumps({"systems": shown, "signatures": signatures}))
        return
    for field, (figures, signature) in compared.items():
        typer.echo(f"{_METRICS[field]:<5} {signature}")
        for name, figure in zip(names, figures, strict=True):
            typer.echo(figure_line(figure, name))


def _score_by_model(
    model: Path | None,
    source: Path | None,
    hypothesis: Path,
    reference: list[Path] | None,
    as_json: bool,
) -> None:
    from regard.files.lines import shown_name
    from regard.loss import perplexity
    from regard.measure.likelihood import likelihoods
    from regard.translation import load

    if model is None or source is None or reference:
        raise DataError("--model goes with --source, and without --reference")
    sources, translations = _aligned(source, hypothesis)
    log_p, pieces = 0.0, 0
    names = shown_name(source), shown_name(hypothesis)
    for one in likelihoods(load(model), sources, translations, names):
        log_p, pieces = log_p + one.log_probability, pieces + one.pieces
        if as_json:
            shown = {"score": one.score, "log_p": one.log_probability, "pieces": one.pieces}
            typer.echo(json.dumps(shown))
        else:
            typer.echo(f"{one.score:.4f}\t{one.log_probability:.4f}\t{one.pieces}")
    note(f"perplexity {perplexity(-log_p, pieces):.3f} of {count_of(pieces, 'piece')}")


def _aligned(*paths: Path) -> list[list[str]]:
    """The lines of each file; at most one file may be standard input.

    Raises DataError if a second file is standard input, if a file is empty or cannot be read, or if
    the files have different numbers of lines.
    """
    from regard.files.lines import read_lines, refuse_standard_input_twice, shown_name

    refuse_standard_input_twice(*paths)
    texts, names = [list(read_lines(path)) for path in paths], [*map(shown_name, paths)]
    for name, lines in zip(names, texts, strict=True):
        if not lines:
            raise DataError("is empty: there is nothing to score", name)
        if len(lines) != len(texts[0]):
            has = f"has {len(lines)} line{'s' * (len(lines) != 1)}"
            raise DataError(
                f"{has} for the {len(texts[0])} of {names[0]}: give one line for each, in the same "
                "order",
                name,
            )
    return texts
