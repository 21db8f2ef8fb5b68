"""Claims about the model and its training, tested by changing or leaving out one thing."""

from regard.claims.parts import Claim, Evidence
from regard.claims.recipes import CHANGES, RATIOS
from regard.claims.trainings import Trained
from regard.parts.verdicts import Quantity, Statement, judge_alike, judge_more

NEARLY = 1.0
"""Results are said to be nearly identical if they differ by less than this, in BLEU."""
BASE_ARM = Trained("base")


def _better(evidence: Evidence, name: str, statement: str, worse: str) -> Statement:
    """Judge whether the training "base" reaches a higher BLEU than the training `worse`.

    Returns a `Statement` with the name `name`, the text `statement`, both BLEU values and the
    verdict.
    """
    base, other = evidence.of("base", "bleu"), evidence.of(worse, "bleu")
    figures = evidence.figures("bleu", {"base": "base", worse: worse})
    return Statement(name, statement, figures, judge_more(base, other))


def _heads(evidence: Evidence) -> list[Statement]:
    return [
        _better(evidence, "one", "4 heads give a higher BLEU than one head", "one-head"),
        _better(evidence, "many", "4 heads give a higher BLEU than 32 heads", "many-heads"),
    ]


def _residual(evidence: Evidence) -> list[Statement]:
    return [
        _better(
            evidence, "bleu", "BLEU is higher with residual connections than without", "no-residual"
        )
    ]


def _warm_up(evidence: Evidence) -> list[Statement]:
    statement = "BLEU is higher with warm-up than by step^-0.5 from the first step on"
    lower = f"{statement}, at a rate whose highest value is that of warm-up"
    return [
        _better(evidence, "full", statement, "no-warm-up"),
        _better(evidence, "low", lower, "no-warm-up-low"),
    ]


def _mask(evidence: Evidence) -> list[Statement]:
    both = {"base": "base", "no-mask": "no-mask"}
    base, other = (evidence.of(name, "train_perplexity") for name in both)
    return [
        Statement(
            "training",
            "without the mask, the perplexity in training is lower",
            evidence.figures("train_perplexity", both, 3),
            judge_more(base, other),
        ),
        _better(evidence, "decoding", "without the mask, BLEU of decoding is lower", "no-mask"),
    ]


def _smoothing(evidence: Evidence) -> list[Statement]:
    both = {"base": "base", "no-smoothing": "no-smoothing"}
    findings = []
    for number, digits, statement in (
        ("perplexity", 3, "smoothing hurts perplexity"),
        ("accuracy", 2, "smoothing improves accuracy (percent of the next pieces)"),
        ("bleu", 1, "smoothing improves BLEU"),
    ):
        base, other = (evidence.of(name, number) for name in both)
        findings.append(
            Statement(number, statement, evidence.figures(number, both, digits),
                    judge_more(base, other))
        )  # fmt: skip
    return findings


def _learned(evidence: Evidence) -> list[Statement]:
    base, learned = evidence.of("base", "bleu"), evidence.of("learned", "bleu")
    figures = evidence.figures("bleu", {"sinusoids": "base", "learned": "learned"})
    statement = f"BLEU of learned positions and sinusoids differs by less than {NEARLY}"
    return [Statement("alike", statement, figures, judge_alike(base, learned, NEARLY))]


def _longer(evidence: Evidence) -> list[Statement]:
    short, learned, base = (evidence.of(n, "long") for n in ("short", "short-learned", "base"))
    seen = Quantity("on sentences as long as in training", evidence.of("short", "short"))
    labels = {"sinusoids": "short", "trained on all lengths": "base"}
    return [
        Statement(
            "better",
            "on sentences longer than any in training, BLEU is higher with sinusoids than with "
            "learned positions",
            evidence.figures("long", {"sinusoids": "short", "learned": "short-learned"}),
            judge_more(short, learned),
        ),
        Statement(
            "at-all",
            "on these, sinusoids reach at least half of the BLEU of a model trained on all lengths",
            (*evidence.figures("long", labels), seen),
            judge_more(short, [value / 2 for value in base]),
        ),
    ]


def _inner_width(evidence: Evidence) -> list[Statement]:
    findings = []
    for name in (f"ratio-{ratio}" for ratio in RATIOS):
        d_model, d_ff = CHANGES[name]["d_model"], CHANGES[name]["d_ff"]
        statement = (
            f"with as many parameters, d_ff = 4 d_model gives a higher BLEU than d_ff = "
            f"{d_ff / d_model:.1f} d_model ({d_ff}, {d_model})"
        )
        findings.append(_better(evidence, name, statement, name))
    return findings


ABLATIONS = (
    Claim(
        "heads",
        "6.2",
        "While single-head attention is 0.9 BLEU worse than the best setting, quality also drops "
        "off with too many heads.",
        (BASE_ARM, Trained("one-head"), Trained("many-heads")),
        _heads,
    ),
    Claim(
        "residual",
        "3.1",
        "We employ a residual connection around each of the two sub-layers, followed by layer "
        "normalization.",
        (BASE_ARM, Trained("no-residual")),
        _residual,
    ),
    Claim(
        "warm-up",
        "5.3",
        "increasing the learning rate linearly for the first warmup_steps training steps",
        (BASE_ARM, Trained("no-warm-up"), Trained("no-warm-up-low")),
        _warm_up,
    ),
    Claim(
        "mask",
        "3.2.3",
        "We need to prevent leftward information flow in the decoder to preserve the "
        "auto-regressive property.",
        (BASE_ARM, Trained("no-mask")),
        _mask,
    ),
    Claim(
        "smoothing",
        "5.4",
        "This hurts perplexity, as the model learns to be more unsure, but improves accuracy and "
        "BLEU score.",
        (BASE_ARM, Trained("no-smoothing")),
        _smoothing,
    ),
    Claim(
        "learned-positions",
        "6.2",
        "we replace our sinusoidal positional encoding with learned positional embeddings, and "
        "observe nearly identical results to the base model",
        (BASE_ARM, Trained("learned")),
        _learned,
    ),
    Claim(
        "longer",
        "3.5",
        "it may allow the model to extrapolate to sequence lengths longer than the ones "
        "encountered during training",
        (BASE_ARM, Trained("short"), Trained("short-learned")),
        _longer,
    ),
    Claim(
        "inner-width",
        "3.3",
        "The dimensionality of input and output is d_model = 512, and the inner-layer has "
        "dimensionality d_ff = 2048.",
        (BASE_ARM, *(Trained(f"ratio-{ratio}") for ratio in RATIOS)),
        _inner_width,
    ),
)
"""The claims that are tested by changing one thing in the model or in its training."""
