"""Table 1, measured: operations, longest chain, path length, time and memory of a layer (§4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from regard.complexity import CONTIGUOUS_PATH, SEPARABLE_COMPLEXITY, TABLE_1, LayerCosts, Sizes
from regard.parts.kept import Figures, Measured, Task
from regard.recipe import Recipe
from regard.reproduce.chart import Axis, Series, chart
from regard.reproduce.costs import exponent, operations, peak_memory, seconds
from regard.reproduce.layers import LAYERS
from regard.reproduce.path import expected_path, longest_chain, path_length
from regard.reproduce.prepared import refuse_another_scale
from regard.reproduce.tables import NONE, Experiment, GrowingTable, Study

NS = (32, 128, 512, 2048, 8192)
DS = (64, 256, 1024)
KERNEL, NEIGHBOURHOOD = 3, 64
"""k, the width of convolutions, and r, the neighbourhood of restricted self-attention; path lengths
are measured with r = 8."""
PATHS = (9, 27, 81, 243)
"""The values of n at which path lengths are measured. They are powers of KERNEL."""
CHAINS = (32, 64, 128)
TIMED_N, TIMED_ROWS = 512, 8
"""The value of n at which layers of several widths d are timed, and the number of sequences. With
only one sequence, a recurrent layer would spend most of its time on reading weights from memory."""
TIMED_DS = {"separable": (*DS, 4096)}
"""The widths d at which a layer is timed; a layer that is not listed is timed at DS. A separable
convolution is also timed at d = 4,096, because up to d = 1,024, much of its time grows with d, not
with the square of d. No other layer is timed at d = 4,096: the weights of a recurrent layer, for
example, would not fit the caches of a processor."""
_PRINTED = {
    "self-attention": TABLE_1["Self-Attention"],
    "with projections": TABLE_1["Self-Attention"],
    "restricted": TABLE_1["Self-Attention (restricted)"],
    "recurrent": TABLE_1["Recurrent"],
    "convolutional": LayerCosts(
        TABLE_1["Convolutional"].complexity, TABLE_1["Convolutional"].sequential, CONTIGUOUS_PATH
    ),
    "dilated": TABLE_1["Convolutional"],
    "separable": LayerCosts(
        SEPARABLE_COMPLEXITY, TABLE_1["Convolutional"].sequential, CONTIGUOUS_PATH
    ),
}
"""The orders of growth that the paper prints for each layer, in Table 1 or in the text of §4."""


def measured_layer(layer: str) -> Measured:
    """Measure all figures of a layer, and return them by name.

    A name consists of a word, n and, in most names, d, as in `operations_2048_64`. The name of a
    time ends in the number of sequences. Times are in seconds.
    """
    found: Measured = {}
    for n in NS:
        for d in DS:
            found[f"operations_{n}_{d}"] = operations(layer, _sizes(n, d))
        found[f"bytes_{n}_{DS[0]}"] = peak_memory(layer, _sizes(n, DS[0]))
    widths = TIMED_DS.get(layer, DS)
    for n, d, rows in [(n, DS[0], 1) for n in NS] + [(TIMED_N, d, TIMED_ROWS) for d in widths]:
        forward, backward = seconds(layer, _sizes(n, d), rows)
        found[f"forward_{n}_{d}_{rows}"], found[f"backward_{n}_{d}_{rows}"] = forward, backward
    for n in CHAINS:
        found[f"chain_{n}"] = longest_chain(layer, _sizes(n, DS[0]))
    for n in PATHS:
        found[f"path_{n}"] = path_length(layer, _path_sizes(n))
    return found


def _sizes(n: int, d: int) -> Sizes:
    return Sizes(n, d, KERNEL, NEIGHBOURHOOD)


def _path_sizes(n: int) -> Sizes:
    return Sizes(n, DS[0], KERNEL, 8)


def _tasks(study: Study) -> list[Task]:
    settings = f"{NS} {DS} {KERNEL} {NEIGHBOURHOOD} {CHAINS} {PATHS} {TIMED_N} {TIMED_ROWS}"
    return [
        Task(_part(x), 1, f"{settings} {TIMED_DS.get(x, DS)}", partial(measured_layer, x))
        for x in LAYERS
    ]


def _part(layer: str) -> str:
    # Earlier versions measured other sizes, and named the parts table1-NAME or table1-layer-NAME.
    # If the name were still the same, `parts.kept` would find the numbers of an earlier version and
    # raise an error. With the new name, it finds no numbers, and the layer is measured again.
    return f"table1-cost-{layer.replace(' ', '-')}"


def exponents(layer: str, found: Measured) -> dict[str, float]:
    """The exponent with which each cost grows in n or d, computed from the two largest sizes.

    The exponent of the longest chain is computed from all sizes, because its length is exact.
    """
    n, d, widths = NS[-1], DS[0], TIMED_DS.get(layer, DS)[-2:]
    return {
        "operations, n": _power(found, "operations_{}_" + str(d), NS[-2:]),
        "operations, d": _power(found, f"operations_{n}_" + "{}", DS[-2:]),
        "chain, n": _power(found, "chain_{}", CHAINS),
        "bytes, n": _power(found, "bytes_{}_" + str(d), NS[-2:]),
        "time, n": exponent(NS[-2:], [_time(found, n, d) for n in NS[-2:]]),
        "time, d": exponent(widths, [_time(found, TIMED_N, d, TIMED_ROWS) for d in widths]),
    }


def _power(found: Measured, name: str, sizes: Sequence[int]) -> float:
    return exponent(sizes, [found[name.format(size)] for size in sizes])


def _time(found: Measured, n: int, d: int, rows: int = 1) -> float:
    return found[f"forward_{n}_{d}_{rows}"] + found[f"backward_{n}_{d}_{rows}"]


def _table(study: Study, numbers: Figures) -> GrowingTable:
    found = {layer: numbers.get((_part(layer), 1)) for layer in LAYERS}
    rows = [_row(layer, one) for layer, one in found.items()]
    return GrowingTable(
        "Table 1: the cost of a layer, measured",
        (
            "layer", "paper: operations", "exponent of n", "of d", "paper: sequential",
            "exponent of the longest chain", f"its steps at n = {CHAINS[-1]}", "paper: path",
            f"path length at n = {', '.join(map(str, PATHS))}", "by definition",
            "time: exponent of n", "of d", "memory: exponent of n",
            f"ms at n = {TIMED_N}, d = {DS[0]}", "state",
        ),
        tuple(rows),
        _notes(found),
        {"layers": {layer: _values(layer, one) for layer, one in found.items()}},
        _drawing(found),
    )  # fmt: skip


def _row(layer: str, found: Measured | None) -> tuple[str, ...]:
    printed = _PRINTED[layer]
    expected = ", ".join(str(expected_path(layer, _path_sizes(n))) for n in PATHS)
    orders = [f"O({one.expression})" for one in (
        printed.complexity, printed.sequential, printed.path)]  # fmt: skip
    if found is None:
        return (layer, orders[0], NONE, NONE, orders[1], NONE, NONE, orders[2], NONE, expected,
                *[NONE] * 4, "waiting")  # fmt: skip
    power = {name: f"{abs(value):.2f}" for name, value in exponents(layer, found).items()}
    return (
        layer,
        orders[0],
        power["operations, n"],
        power["operations, d"],
        orders[1],
        power["chain, n"],
        f"{found[f'chain_{CHAINS[-1]}']:.0f}",
        orders[2],
        ", ".join(f"{found[f'path_{n}']:.0f}" for n in PATHS),
        expected,
        power["time, n"],
        power["time, d"],
        power["bytes, n"],
        f"{1000 * _time(found, TIMED_N, DS[0]):.2f}",
        "done",
    )


def _values(layer: str, found: Measured | None) -> dict[str, Any]:
    printed = _PRINTED[layer]
    return {
        "paper": {
            "operations": printed.complexity.expression,
            "sequential": printed.sequential.expression,
            "path": printed.path.expression,
        },
        "exponents": found and exponents(layer, found),
        "expected_path": {str(n): expected_path(layer, _path_sizes(n)) for n in PATHS},
        "measured": found,
    }


def _notes(found: dict[str, Measured | None]) -> tuple[str, ...]:
    notes = [
        f"k = {KERNEL}, r = {NEIGHBOURHOOD} (8 for path lengths), fp32, one sequence but for the "
        "times of several d. Operations are those of the forward pass, counted by PyTorch; memory "
        "is the most that a forward and a backward pass have at a time; time is the processor's "
        "for both passes, the fastest of at least three. Exponents are between the two largest "
        f"sizes: n = {NS[-2]:,} and {NS[-1]:,} at d = {DS[0]}, and d = {DS[-2]} and {DS[-1]:,} "
        f"at n = {NS[-1]:,} (time: n = {TIMED_N}, {TIMED_ROWS} sequences; "
        + "; ".join(f"{x}: d = {ds[-2]:,} and {ds[-1]:,}" for x, ds in TIMED_DS.items())
        + ").",
        "A path length is the number of layers (for the recurrent layer: of steps) after which a "
        "gradient from the last position reaches all others. A convolution sees a position and "
        "the k - 1 before it, so contiguous ones need (n - 1) / (k - 1) layers; restricted "
        "self-attention sees r / 2 positions on each side and needs 2 (n - 1) / r.",
    ]
    attention, recurrent = found["self-attention"], found["recurrent"]
    if attention and recurrent:
        ratios = [
            f"{attention[f'operations_{n}_{d}'] / recurrent[f'operations_{n}_{d}']:.4g} at n = "
            f"{n:,}, d = {d:,}"
            for n, d in ((32, 64), (512, 64), (512, 256), (512, 1024), (8192, 1024))
        ]
        notes.append(
            "§4: self-attention takes fewer operations than a recurrent layer where n < d. The "
            f"ratio of the two is n / d: {'; '.join(ratios)}."
        )
    return tuple(notes)


def _drawing(found: dict[str, Measured | None]) -> str:
    series = [
        Series(
            layer,
            tuple((n, 1000 * _time(one, n, DS[0]), "") for n in NS) if one else (),
            line=True,
        )
        for layer, one in found.items()
    ]
    x, y = Axis(f"n (d = {DS[0]})", log=True), Axis("ms, forward and backward", log=True)
    return chart("Table 1: time of a layer", x, y, series)


def _prepare_nothing(study: Study) -> None:
    """Make the directory; no data is needed.

    Raises DataError if the directory was begun at another scale: this table is the same at every
    scale, but it is shown on a page with tables of one scale.
    """
    refuse_another_scale(study)
    study.out.mkdir(parents=True, exist_ok=True)


def _trains_nothing(study: Study) -> dict[str, Recipe]:
    """No recipes: no row of this table is trained."""
    return {}


TABLE_1_EXPERIMENT = Experiment("table1", _prepare_nothing, _tasks, _table, _trains_nothing)
"""The functions that make Table 1."""
