"""§5.1, §6.2, §6.3: departures from the paper in training data, development data and batches."""

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
from regard.paper import CORPORA
from regard.recipe import Recipe

_SUB_WORDS = ("tokenizer.kind", "tokenizer.vocabulary")
_BATCH = ("data.source_tokens", "data.target_tokens", "training.accumulate")
_NEAR = 0.1
"""A corpus departs from the paper if its size differs from the paper's by more than this fraction.
The paper prints rounded sizes."""


def corpus_of(row: str) -> str:
    """The name in `CORPORA` of the text that a row's model was trained on."""
    parsers = {"wsj": "WSJ", "wsj-semi": "WSJ, semi-supervised"}
    return parsers.get(row, "WMT 2014 EN-FR" if row.endswith("en-fr") else "WMT 2014 EN-DE")


def _text(case: Compared) -> Finding | None:
    name, pairs = corpus_of(case.row), case.facts.pairs
    size = CORPORA[name].sentences
    paper = f"{name}, about {size:,} sentences or pairs"
    if pairs is None:
        return Finding("unseen", paper, "which text it learns from")
    if abs(pairs - size) > _NEAR * size:
        return Finding("departs", paper, f"{pairs:,} of them")
    return Finding("unseen", paper, f"{pairs:,} of them; whether they are that text")


def _sub_words(case: Compared) -> Finding | None:
    wanted, learned = case.printed.tokenizer.vocabulary, case.facts.vocabulary
    if case.changed("tokenizer.kind") or learned in (None, case.recipe.tokenizer.vocabulary):
        return as_row(*_SUB_WORDS).finding(case)
    if learned == wanted:
        return None
    return Finding("departs", f"{wanted:,} entries", f"{learned:,} entries")


def _sample(case: Compared) -> Finding | None:
    share = case.facts.sample
    if share is None:
        return Finding("unseen", here="whether the sub-words are learned from all of the text")
    if share == 1:
        return None
    percent = min(100 * share, 99)  # 99.9 % is shown as 99 %, not as 100 %
    here = f"sub-words are learned from {percent:.2g} % of the {_units(case)}"
    return Finding("departs", here=here)


def _mix(case: Compared) -> Finding | None:
    mix = case.facts.mix or ()
    return Finding("departs", here=f"--mix {','.join(map(str, mix))}") if {*mix} - {1} else None


def _batch(case: Compared) -> Finding | None:
    printed, here = _tokens(case.printed), _tokens(case.recipe)
    if printed == here:
        return None
    return Finding("departs", printed, f"{here} ({values(case.recipe, _BATCH)})")


def _tokens(recipe: Recipe) -> str:
    """The largest numbers of source and target tokens in an optimizer step, as text.

    They are the limits of a batch, times the number of batches in a step.
    """
    times = recipe.training.accumulate
    source, target = recipe.data.source_tokens * times, recipe.data.target_tokens * times
    return f"{source:,} source and {target:,} target tokens"


def _held_out(case: Compared) -> Finding | None:
    held_out = case.facts.held_out
    if held_out is None:
        here = "whether files are given to validate with"
        return as_row("data.held_out").finding(case) or Finding("unseen", here=here)
    here = f"{held_out:,} {_units(case)} of the training text are held out"
    return Finding("departs", here=here) if held_out else None


def _units(case: Compared) -> str:
    return "trees" if is_parser(case) else "pairs"


def _layout(case: Compared) -> Finding | None:
    if case.recipe.data.layout == "grouped":
        return None
    fields = ("data.layout", "data.row_length")
    return Finding("departs", 'data.layout = "grouped"', values(case.recipe, fields))


DATA = (
    Departure(
        name="text",
        section="§5.1, §6.3",
        quote="the standard WMT 2014 English-German dataset consisting of about 4.5 million "
        "sentence pairs",
        theirs="the same",
        ours="any text; `regard prepare` counts the pairs that it keeps",
        why="a recipe does not name its text",
        tests=("tests/measure/test_facts.py",),
        judge=Judge(_text),
    ),
    Departure(
        name="sub-words",
        section="§5.1, §6.3",
        quote="a shared source-target vocabulary of about 37000 tokens",
        theirs="padded to 40,960 entries",
        ours="37,000 entries, among them the 256 bytes and three special symbols; fewer if the "
        "text is small",
        why="the paper's text says 37,000; the padded number appears only in the parameters of "
        "Table 3",
        tests=("tests/text/test_tokenizer.py", "tests/test_paper.py"),
        judge=Judge(_sub_words, _SUB_WORDS),
    ),
    Departure(
        name="cutting text before sub-words",
        section="§5.1",
        theirs="EN-DE: words of Moses' tokenizer, cleaned and encoded beforehand; EN-FR: pieces "
        "of characters, in text that is cut where letters or digits meet other characters",
        ours="byte-level: sub-words of UTF-8 bytes, without a tokenizer beforehand; the text is "
        "cut before each space and, by GPT-2's pattern, where letters, digits and other "
        "characters meet; in text to translate, characters that no sub-word has are replaced by "
        "plainer ones",
        why="no character is unknown, and each text comes back unchanged; a model cannot read what "
        "its text never had",
        tests=("tests/text/test_tokenizer.py", "tests/text/test_plain.py"),
        judge=unstated(),
    ),
    Departure(
        name="word pieces",
        section="§5.1",
        quote="a 32000 word-piece vocabulary [38]",
        theirs="pieces chosen by their counts",
        ours="pieces are merged in the order of their gain of likelihood, as in the cited work "
        "([measured](../experiments/wordpieces/README.md)); a word is encoded by the longest "
        "pieces that match",
        why="as published",
        tests=("tests/text/test_wordpieces.py", "tests/text/test_tokenizer.py"),
        judge=NO_DEPARTURE,
    ),
    Departure(
        name="sample for the sub-words",
        section="§5.1",
        quote="Sentences were encoded using byte-pair encoding",
        theirs="learned from the whole text (EN-DE), or from a part (EN-FR)",
        ours="learned from a random sample of at most about a million pairs and 200 million "
        "characters, of which 8 million without blanks",
        why="memory and time stay bounded for any text",
        tests=("tests/data/test_prepare.py",),
        judge=Judge(_sample),
    ),
    Departure(
        name="longest sentences",
        section="§5.1",
        theirs="training pairs with a side of more than 256 pieces are dropped; for parsing, of "
        "more than 512",
        ours="the same; the number of dropped pairs is reported",
        why="the authors' code does so",
        tests=("tests/text/test_cleaning.py", "tests/data/test_prepare_kept.py"),
        judge=unstated("data.max_length"),
    ),
    Departure(
        name="recombined trees",
        section="§6.3",
        quote="about 40K training sentences",
        theirs="none",
        ours="none; `data.recombined`, in `small-parse`, adds trees in which phrases of gold trees "
        "are exchanged",
        why="it helps where trees are few ([measured](../experiments/table4/README.md))",
        tests=("tests/trees/test_recombining.py", "tests/data/test_treebank.py"),
        judge=as_row("data.recombined"),
    ),
    Departure(
        name="unequal pairs",
        section="§5.1",
        theirs="the EN-DE text was cleaned beforehand; the code itself drops no pair for unequal "
        "lengths",
        ours="a pair of more than ten characters is dropped, and reported, if one side has more "
        "than 9 times as many characters as the other",
        why="such pairs are hardly ever translations",
        tests=("tests/text/test_cleaning.py", "tests/data/test_prepare_kept.py"),
        judge=unstated("data.max_ratio"),
    ),
    Departure(
        name="share of the text",
        section="§5.1",
        quote="the standard WMT 2014 English-German dataset consisting of about 4.5 million "
        "sentence pairs",
        theirs="all pairs of the text",
        ours="the same; `data.share` draws a part at random, and `--time` does so if the time is "
        "too short for a quarter of a text of more than 200,000 pairs",
        why="a run that ends before it has seen a text needs only a part of it to be prepared",
        tests=("tests/data/test_share.py", "tests/test_budget.py"),
        judge=as_row("data.share"),
    ),
    Departure(
        name="identical pairs",
        section="§5.1",
        theirs="the code drops no pair",
        ours="all pairs are kept; `data.deduplicate` drops repeated ones",
        why="a small text may repeat itself",
        tests=("tests/data/test_prepare_kept.py",),
        judge=as_row("data.deduplicate"),
    ),
    Departure(
        name="mixture of texts",
        section="§5.1",
        theirs="every pair once in an epoch",
        ours="every pair once in an epoch; `--mix` repeats some texts",
        why="a small text of the right field is worth more than a large one of another",
        tests=("tests/data/test_prepare.py", "tests/measure/test_facts.py"),
        judge=Judge(_mix),
    ),
    Departure(
        name="development set",
        section="§6.2",
        quote="the development set, newstest2013",
        theirs="the same",
        ours="the files that the user gives, or else pairs held out of the training text",
        why="a user who has only one text also needs pairs for validation",
        tests=("tests/data/test_prepare_kept.py", "tests/measure/test_facts.py"),
        judge=Judge(_held_out, ("data.held_out",)),
    ),
    Departure(
        name="size of a batch",
        section="§5.1",
        quote="approximately 25000 source tokens and 25000 target tokens",
        theirs="4,096 padded tokens of the longer side on each of 8 GPUs",
        ours="at most 25,000 source and 25,000 target tokens, padding included; one step learns "
        "from `training.accumulate` such batches",
        why="an optimizer step learns from as many tokens as published",
        tests=("tests/data/test_batches.py",),
        judge=Judge(_batch, _BATCH),
    ),
    Departure(
        name="batches of similar length",
        section="§5.1",
        quote="Sentence pairs were batched together by approximate sequence length.",
        theirs="buckets by length: up to 8, 12, 16, 24, ... pieces",
        ours="by default rows of one width, each filled with pairs of any length in random order; "
        "pairs in one row do not attend to each other ([why](decisions.md#training)). "
        '`data.layout = "grouped"` is as published',
        why="a batch of sentences of one length teaches only that length",
        tests=("tests/data/test_batches.py", "tests/test_transformer.py"),
        judge=Judge(_layout, ("data.layout", "data.row_length")),
    ),
    Departure(
        name="sub-word dropout",
        section="§5.1",
        theirs="none",
        ours="none; `data.subword_dropout` skips merges at random",
        why="it is reported to help with small texts; it is off, because no gain was measured here",
        tests=("tests/data/test_subword_dropout.py",),
        judge=as_row("data.subword_dropout"),
    ),
)
