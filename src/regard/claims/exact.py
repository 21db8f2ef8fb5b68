"""Claims that calculations check: on positions, convolutions, dot products, gradients, heads."""

from regard.claims import calculations
from regard.claims.calculations import DISTRIBUTIONS, HEADS
from regard.claims.parts import Calculation, Claim, Evidence
from regard.claims.recipes import WIDTHS
from regard.paper import BASE
from regard.parts.verdicts import Quantity, Statement, judge_alike, judge_at_most, judge_more

ROUNDING_FP32 = 2e-7
"""An error above this is not due to rounding alone. fp32 rounds an entry of PE by up to 3e-8. Each
error is computed from three rounded entries: one entry of PE(pos + k), and the two entries of
PE(pos) from which R_k computes that entry."""
ROUNDING_FP64 = 1e-12
"""An error above this, in fp64, is not due to rounding alone."""


def _positions(evidence: Evidence) -> list[Statement]:
    error = evidence.of("positions", "error")
    random = evidence.of("positions", "random_error")
    figures = (
        Quantity("largest error", error, 0),
        Quantity("of the best linear map of a random table", random, 0),
    )
    statement = "one rotation R_k gives PE(pos + k) = R_k PE(pos) for every pos, up to rounding"
    return [Statement("linear", statement, figures, judge_at_most(error, ROUNDING_FP32))]


def _convolutions(evidence: Evidence) -> list[Statement]:
    error = evidence.of("convolutions", "error")
    statement = "FFN(x) equals conv1d, ReLU, conv1d with kernels of 1 and the same weights"
    figures = (Quantity("largest difference (fp64)", error, 0),)
    return [Statement("equal", statement, figures, judge_at_most(error, ROUNDING_FP64))]


def _variances(evidence: Evidence) -> list[Statement]:
    found = []
    for name in DISTRIBUTIONS:
        figures = evidence.figures_of(
            "dot-products", {f"d_k {d}": f"{name}_{d}" for d in WIDTHS}, 3
        )
        by_seed = zip(*(figure.values for figure in figures), strict=True)
        worst = [max(each, key=lambda v: abs(v - 1)) for each in by_seed]
        verdict = judge_alike(worst, [1.0] * len(worst), 0.05)
        statement = f"variance / d_k of dot products is 1; components: {name}"
        found.append(Statement(name, statement, figures, verdict))
    for name, values in (("apart", "each matrix has its own limit"), ("joined", "the authors'")):
        initial = evidence.of("dot-products", name)
        verdict = judge_alike(initial, [1.0] * len(initial), 0.1)
        statement = (
            f"it is 1 for q and k of the paper's base, untrained, too; initial values: {values}"
        )
        found.append(Statement(name, statement, (Quantity("d_k 64", initial, 3),), verdict))
    return found


def _gradients(evidence: Evidence) -> list[Statement]:
    def figures(kind: str) -> tuple[Quantity, ...]:
        named = {f"d_k {d}": f"{kind}_{d}" for d in WIDTHS}
        most = Quantity("largest weight at 256", evidence.of("gradients", f"{kind}_most_256"), 2)
        return (*evidence.figures_of("gradients", named, 3), most)

    small, large = (evidence.of("gradients", f"dot_{d}") for d in (WIDTHS[0], WIDTHS[-1]))
    narrow, wide = (evidence.of("gradients", f"scaled_{d}") for d in (WIDTHS[0], WIDTHS[-1]))
    return [
        Statement(
            "dot",
            "without scaling, the softmax's gradient is smaller at d_k 256 than at 16",
            figures("dot"),
            judge_more(small, large),
        ),
        Statement(
            "scaled",
            "with scaling, it is the same at every d_k, within 5 %",
            figures("scaled"),
            judge_alike(wide, narrow, 0.05 * narrow[0]),
        ),
    ]


def _head_costs(evidence: Evidence) -> list[Statement]:
    findings = []
    for name, what in (
        ("parameters", "h heads of width d_model / h have the parameters of one full head"),
        ("flop", "training takes the same operations, computed from the sizes"),
        ("counted", "attention takes the same operations, counted while PyTorch computes it"),
    ):
        shown = {f"h = {h}": f"{name}_{h}" for h in (1, BASE.model.heads)}
        one = evidence.of("head-costs", f"{name}_1")
        most = [
            max(abs(many - single) for many, single in zip(values, one, strict=True))
            for values in (evidence.of("head-costs", f"{name}_{h}") for h in HEADS)
        ]
        figures = evidence.figures_of("head-costs", shown, 0)
        findings.append(Statement(name, what, figures, judge_at_most(most, 0.0)))
    return findings


EXACT = (
    Claim(
        "positions",
        "3.5",
        "for any fixed offset k, PE_{pos+k} can be represented as a linear function of PE_{pos}",
        (Calculation("positions", calculations.positions),),
        _positions,
    ),
    Claim(
        "convolutions",
        "3.3",
        "Another way of describing this is as two convolutions with kernel size 1.",
        (Calculation("convolutions", calculations.convolutions),),
        _convolutions,
    ),
    Claim(
        "variances",
        "3.2.1",
        "assume that the components of q and k are independent random variables with mean 0 and "
        "variance 1. Then their dot product [...] has mean 0 and variance d_k.",
        (Calculation("dot-products", calculations.variances),),
        _variances,
    ),
    Claim(
        "gradients",
        "3.2.1",
        "for large values of d_k, the dot products grow large in magnitude, pushing the softmax "
        "function into regions where it has extremely small gradients",
        (Calculation("gradients", calculations.softmax_gradients),),
        _gradients,
    ),
    Claim(
        "head-costs",
        "3.2.2",
        "Due to the reduced dimension of each head, the total computational cost is similar to "
        "that of single-head attention with full dimensionality.",
        (Calculation("head-costs", calculations.head_costs),),
        _head_costs,
    ),
)
"""The claims of this module. One more claim needs no training: the claim on the costs of attention
scores, in `scores.SCORING`."""
