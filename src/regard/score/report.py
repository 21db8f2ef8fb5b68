"""§6.1 "BLEU": several scores of a translation, each with its meaning; one is the paper's BLEU.

The paper does not describe how its BLEU was computed. The script that its authors released divides
words by Moses' tokenizer.perl, splits compounds and counts with multi-bleu.perl.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from regard.recipe import BleuTokenizer
from regard.score.bleu import Figure, bleu_metric, compare_by, ter_metric
from regard.score.moses import normalise, split_compounds, tokenise

Step = Literal["normalise", "tokenise", "split"]
"""A step, in moses.py, that prepares a line before its words are counted."""
TextSteps = tuple[Step, ...]
ALL_STEPS: TextSteps = get_args(Step)
"""All steps, in the order in which they are done."""
PAPER_STEPS: TextSteps = ("tokenise", "split")
"""The steps of the script that the paper's authors released."""

_BLANKS = "\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
_BLANKS += "".join(map(chr, range(0x2000, 0x200B)))
_AS_LETTERS = {ord(one): 0xF0000 + ord(one) for one in _BLANKS}
"""Python divides words at these blanks, and multi-bleu.perl does not. So each blank is mapped to
an unused character, which replaces the blank."""

_MEANINGS = {
    "bleu_13a": "BLEU of detokenised, cased text, whose words sacreBLEU divides as WMT's script "
    "mteval-v13a does: the score to publish, and to compare with scores of the same signature.",
    "bleu_intl": "BLEU of the same text, with every mark and symbol of Unicode a word of its own, "
    "as by mteval-v14 in its international mode: to compare with scores of the same signature.",
    "chrf2": "chrF2, the F-score of sequences of 1 to 6 letters, in which recall counts twice: it "
    "gives part of the credit to a word in another form.",
    "ter": "Translation edit rate: words to insert, delete, replace or move, for 100 words of the "
    "reference, whatever their case: lower is better.",
}
_OWN = (
    "BLEU of detokenised, cased text, whose words sacreBLEU divides by {}: for a language that 13a "
    "does not suit, the score to publish, and to compare with scores of the same signature."
)
_DONE = {
    "normalise": "punctuation made plain by normalize-punctuation.perl",
    "tokenise": "words divided by Moses' tokenizer.perl",
    "split": "compounds split into x ##AT##-##AT## y",
}


@dataclass(frozen=True)
class ReportedScore:
    """One kind of score, for all systems."""

    meaning: str
    """A sentence that says what the score measures."""
    signature: str
    """How the score was computed, in sacreBLEU's notation."""
    figures: list[Figure]
    """A figure for each system; each system after the first is compared with the first."""


class MultiBleu(BLEU):
    """BLEU as multi-bleu.perl counts it: cased, unsmoothed, words divided at ASCII's blanks.

    Before words are counted, each line is prepared by `steps`, as text in `language`, such as "de".
    multi-bleu.perl fails if all translations are empty; here their score is 0.
    """

    def __init__(self, language: str, steps: TextSteps = PAPER_STEPS):
        super().__init__(tokenize="none", smooth_method="none", force=True)
        self.language, self.steps = language, steps
        self.tokenizer_signature = "-".join(("moses", language, *steps)) if steps else "none"

    def _preprocess_segment(self, sent: str) -> str:
        return prepare_line(sent, self.language, self.steps).translate(_AS_LETTERS)


@lru_cache(maxsize=1 << 16)
def prepare_line(line: str, language: str, steps: TextSteps = PAPER_STEPS) -> str:
    """Apply `steps` to a line, in the order of `ALL_STEPS`."""
    if "normalise" in steps:
        line = normalise(line, language)
    if "tokenise" in steps:
        line = tokenise(line, language)
    return split_compounds(line) if "split" in steps else line


def report_translations(
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    language: str,
    steps: TextSteps = PAPER_STEPS,
    tokenizer: BleuTokenizer = "13a",
) -> dict[str, ReportedScore]:
    """The scores bleu_13a, bleu_intl, bleu_paper, chrf2 and ter of each system.

    `language` is the language of the text. `steps` prepare the text for bleu_paper alone. If
    `tokenizer` is neither 13a nor intl, BLEU by this tokenizer, such as bleu_char, is a sixth
    score, and comes first. Each system is compared with the first one. Raises the errors of
    `compare_by`, and MissingExtra if the tokenizer is not installed.
    """
    own = {} if tokenizer in ("13a", "intl") else {f"bleu_{tokenizer}": tokenizer}
    metrics: dict[str, Metric] = {
        **{key: bleu_metric(name, force=True) for key, name in own.items()},
        "bleu_13a": BLEU(tokenize="13a", force=True),
        "bleu_intl": BLEU(tokenize="intl", force=True),
        "bleu_paper": MultiBleu(language, steps),
        "chrf2": CHRF(),
        "ter": ter_metric(references),
    }
    meanings = {**_MEANINGS, "bleu_paper": _meaning(steps)}
    meanings |= {key: _OWN.format(name) for key, name in own.items()}
    found = {}
    for key, metric in metrics.items():
        figures, signature = compare_by(metric, systems, references)
        found[key] = ReportedScore(meanings[key], signature, figures)
    return found


def score_by_steps(
    translations: Sequence[str], references: Sequence[Sequence[str]], language: str
) -> dict[str, float]:
    """The BLEU of multi-bleu.perl for each usual choice of steps, such as `tokenise+split`."""
    choices: list[TextSteps] = [("tokenise",), PAPER_STEPS, ("normalise", "tokenise"), ALL_STEPS]
    return {
        "+".join(steps): float(
            MultiBleu(language, steps).corpus_score(translations, references).score
        )
        for steps in choices
    }


def looks_tokenised(lines: Sequence[str]) -> bool:
    """Whether most of the lines that end in a full stop have a blank before this full stop."""
    stops = [line for line in lines if line.rstrip().endswith(".")]
    return sum(line.rstrip().endswith(" .") for line in stops) > len(stops) / 2


def recognise(lines: int) -> str | None:
    """Return a message if text with this many lines may be newstest2014, the paper's test set.

    WMT published this English-German test set in full, with 3,003 lines, and filtered, with 2,737.
    Returns None for any other number of lines.
    """
    said = {
        3003: "looks like newstest2014 in full; 2,737: the filtered one",
        2737: "looks like newstest2014, the filtered one; 3,003: in full",
    }
    return f"{lines:,} lines: {said[lines]}" if lines in said else None


def _meaning(steps: TextSteps) -> str:
    done = ", ".join(_DONE[step] for step in ALL_STEPS if step in steps)
    said = f"BLEU by multi-bleu.perl, cased and unsmoothed, {done or 'of words as they stand'}"
    if steps == PAPER_STEPS:
        return f"{said}: as by the paper's authors, to compare with their 27.3 and 28.4."
    return f"{said}: not what the paper's authors did, unless the text is prepared already."
