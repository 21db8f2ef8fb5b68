"""§6: departures from the paper in the search, the scores and the parsers."""

from regard.departures.case import (
    NO_DEPARTURE,
    Compared,
    Departure,
    Finding,
    Judge,
    as_row,
    is_parser,
    unstated,
    values,
)

_BEAM = ("search.beam", "search.alpha", "training.tune")


def _beam(case: Compared) -> Finding | None:
    found = as_row(*_BEAM).finding(case)
    if not case.facts.tuned:
        return found
    here = values(case.recipe, _BEAM[:2])
    return Finding("departs", values(case.printed, _BEAM[:2]), f"{here}, chosen for this model")


def _retry(case: Compared) -> Finding | None:
    if is_parser(case):
        return None
    return Finding("unseen", here="whether translations are made with --no-retry")


def _bleu(case: Compared) -> Finding | None:
    return None if is_parser(case) else Finding("unseen", here="how a translation is scored")


def _french(case: Compared) -> Finding | None:
    return Finding("unstated") if case.row == "big-en-fr" else None


def _form(case: Compared) -> Finding | None:
    if changed := as_row("task.output", "task.form").finding(case):
        return changed
    return (
        Finding("unstated", here=values(case.recipe, ("task.form",))) if is_parser(case) else None
    )


def _for_parsers(case: Compared) -> Finding | None:
    return Finding("unstated") if is_parser(case) else None


RESULTS = (
    Departure(
        name="beam and length penalty",
        section="§6.1, §6.3",
        quote="beam search with a beam size of 4 and length penalty α = 0.6 [38]",
        theirs="the same",
        ours="the same, and 21 and 0.3 for parsers; `training.tune`, `regard tune` and `--time` "
        "choose others for a model",
        why="for another model, other values may be better",
        tests=("tests/search/test_beam_search.py", "tests/measure/test_tuning.py"),
        judge=Judge(_beam, _BEAM),
    ),
    Departure(
        name="formula of the length penalty",
        section="§6.1",
        quote="length penalty α = 0.6 [38]",
        theirs="score = log p / ((5 + length)/6)^alpha, the length with `</s>`; stops when no live "
        "hypothesis can overtake the finished ones",
        ours='the same; `search.penalty = "length"` divides by length^alpha',
        why='in some other tools "0.6" means length^0.6, which is another search',
        tests=("tests/search/test_rules.py", "tests/search/test_beam_search.py"),
        judge=as_row("search.penalty"),
    ),
    Departure(
        name="hypotheses that finish",
        section="§6.1",
        theirs="of the 2 × beam best continuations of a step, all that end in `</s>`",
        ours='the same; `search.finish = "beam"` takes only those among the beam best, and ends '
        "as the search of Hugging Face's `transformers` does",
        why="the paper does not say; models of other programs were measured with the search of "
        "`transformers`",
        tests=("tests/search/test_beam_search.py",),
        judge=unstated("search.finish"),
    ),
    Departure(
        name="longest output",
        section="§6.1, §6.3",
        quote="We set the maximum output length during inference to input length + 50",
        theirs="the same",
        ours="the same, and input length + 300 for parsers",
        why="as published",
        tests=("tests/search/test_rules.py", "tests/test_paper.py"),
        judge=as_row("search.max_extra"),
    ),
    Departure(
        name="second search",
        section="§6.1",
        quote="We used beam search",
        theirs="one search for a sentence",
        ours="`regard translate` and the server search again where a translation looks wrong, and "
        "for lines with capitals that the vocabulary lacks; `--no-retry` does not, nor does the "
        "server with CTranslate2 without `--retry`",
        why="so repeated phrases and outputs that end too early are mended; validation and "
        "`regard tune` search once",
        tests=("tests/mending/test_retry.py", "tests/mending/test_mend.py"),
        judge=Judge(_retry),
    ),
    Departure(
        name="BLEU",
        section="§6.1, Table 2",
        quote="a new state-of-the-art BLEU score of 28.4",
        theirs="cased BLEU of the words of Moses' tokenizer, with each `x-y` split on both sides: "
        "often about one point more than sacreBLEU 13a",
        ours="sacreBLEU, always with its signature; `regard score --report` adds the BLEU of the "
        "authors' script, with the same words, byte for byte, as Moses' tokenizer "
        "([how](scores.md))",
        why="the paper does not describe how it computed BLEU, and other texts are scored by "
        "sacreBLEU",
        tests=(
            "tests/score/test_bleu.py",
            "tests/score/test_moses.py",
            "tests/score/test_report.py",
        ),
        judge=Judge(_bleu),
    ),
    Departure(
        name="two figures for English-French",
        section="§6.1, Table 2",
        quote="our big model achieves a BLEU score of 41.0",
        theirs="–",
        ours="41.8, as the abstract and Table 2 print, and 41.0, as the text does, are both kept, "
        "each under its own name",
        why="the text still has the figure of the paper's first versions",
        tests=("tests/test_paper.py",),
        judge=Judge(_french),
    ),
    Departure(
        name="cost of training",
        section="§6.1, Table 2",
        quote="multiplying the training time, the number of GPUs used, and an estimate of the "
        "sustained single-precision floating-point capacity of each GPU",
        theirs="–",
        ours="a test derives the printed costs from the printed times; every run reports its "
        "counted operations and, under another name, an estimate like the paper's, for which it "
        "measures the speed of matrix products in fp32 on its device",
        why="counted and estimated operations cannot be compared",
        tests=(
            "tests/test_paper.py",
            "tests/test_cost.py",
            "tests/machine/test_speed.py",
            "tests/run/test_directory.py",
        ),
        judge=NO_DEPARTURE,
    ),
    Departure(
        name="trees as text",
        section="§6.3",
        theirs="words are replaced by their tags, and the symbol that closes a phrase has its "
        "label; the source is in word pieces",
        ours="the same; or tags normalised to XX (`task.form`)",
        why="the label in a closing symbol shows which phrase it closes",
        tests=("tests/trees/test_linearise.py", "tests/test_parsing.py"),
        judge=Judge(_form, ("task.output", "task.form")),
    ),
    Departure(
        name="well-formed trees",
        section="§6.3",
        theirs="any sequence of symbols",
        ours="the search keeps only hypotheses that can become trees over the words; EVALB scores "
        "them (COLLINS.prm, sentences of all lengths)",
        why="a tree that lacks a word is of no use",
        tests=("tests/test_wellformed.py", "tests/score/test_brackets.py"),
        judge=Judge(_for_parsers),
    ),
)
