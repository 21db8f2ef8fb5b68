"""Claims of §3.2.1 on scaled and unscaled dot products and additive attention.

The claim about costs is tested by a calculation, the others by training. BLEU is measured on unseen
sentences that are as short as the sentences in training.
"""

from math import log

from regard.claims import calculations
from regard.claims.parts import Calculation, Claim, Evidence
from regard.claims.recipes import SCORES, WIDTHS
from regard.claims.trainings import Trained
from regard.parts.verdicts import Statement, judge_alike, judge_more

ALIKE = 2.0
"""Models are said to be alike if they differ by less than this, in BLEU."""


def _arms(*scores: str) -> tuple[Trained, ...]:
    return tuple(Trained(f"{score}-{d_k}") for d_k in WIDTHS for score in scores)


def _scaling(evidence: Evidence) -> list[Statement]:
    findings = []
    for d_k in WIDTHS:
        names = {score: f"{score}-{d_k}" for score in ("scaled", "dot")}
        scaled, dot = (evidence.of(name, "short") for name in names.values())
        statement = f"d_k {d_k}: BLEU is higher with scaling than without"
        figures = evidence.figures("short", names)
        findings.append(Statement(f"d_k-{d_k}", statement, figures, judge_more(scaled, dot)))
    return findings


def _additive(evidence: Evidence) -> list[Statement]:
    def finding(d_k: int, statement: str, *, alike: bool) -> Statement:
        names = {score: f"{score}-{d_k}" for score in SCORES}
        additive, dot = (evidence.of(names[score], "short") for score in ("additive", "dot"))
        verdict = judge_alike(additive, dot, ALIKE) if alike else judge_more(additive, dot)
        figures = evidence.figures("short", names)
        return Statement(f"d_k-{d_k}", f"d_k {d_k}: {statement}", figures, verdict)

    small, middle, large = WIDTHS
    better = "additive attention has a higher BLEU than dot products without scaling"
    return [
        finding(
            small,
            f"additive attention and unscaled dot products are alike, within {ALIKE} BLEU",
            alike=True,
        ),
        finding(middle, better, alike=False),
        finding(large, better, alike=False),
    ]


def _additive_costs(evidence: Evidence) -> list[Statement]:
    findings = []
    for d_k in WIDTHS:
        for unit, what in (("ms", "faster"), ("MB", "smaller in memory")):
            names = {f"{kind} ({unit})": f"{kind}_{unit}_{d_k}" for kind in ("dot", "additive")}
            dot, additive = (evidence.of("score-costs", name) for name in names.values())
            findings.append(
                Statement(
                    f"{unit.lower()}-{d_k}",
                    f"d_k {d_k}: dot products are {what} than additive attention",
                    evidence.figures_of("score-costs", names, 2),
                    # Logarithms, because the ratio additive / dot is judged, not the difference.
                    judge_more([*map(log, additive)], [*map(log, dot)]),
                )
            )
    return findings


SCORING = (
    Claim(
        "scaling",
        "3.2.1",
        "To counteract this effect, we scale the dot products by 1/sqrt(d_k).",
        _arms("scaled", "dot"),
        _scaling,
    ),
    Claim(
        "additive",
        "3.2.1",
        "While for small values of d_k the two mechanisms perform similarly, additive attention "
        "outperforms dot product attention without scaling for larger values of d_k",
        _arms(*SCORES),
        _additive,
    ),
    Claim(
        "additive-costs",
        "3.2.1",
        "dot-product attention is much faster and more space-efficient in practice, since it can "
        "be implemented using highly optimized matrix multiplication code",
        (Calculation("score-costs", calculations.score_costs),),
        _additive_costs,
    ),
)
"""The claims about the attention score of a query and a key."""
