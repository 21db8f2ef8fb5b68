"""Add & Norm (§3.1, §5.4), and its gradient."""

import numpy as np
from numpy import float32 as f32

from regard.arithmetic.loops.numbers import Numbers, keep, loop_for, read, within, write


@within
def _norm(
    total: Numbers, weight: Numbers, bias: Numbers, eps: float, out: Numbers
) -> tuple[f32, f32]:
    """Write LayerNorm of the row `total` to `out`, and subtract the row's mean from `total`.

    Returns the mean of the row and 1 / its standard deviation.
    """
    columns = len(total)
    mean, variance = f32(0), f32(0)
    for j in range(columns):
        mean += total[j]
    mean /= f32(columns)
    for j in range(columns):
        total[j] -= mean
        variance += total[j] * total[j]
    factor = f32(1) / np.sqrt(variance / f32(columns) + eps)
    for j in range(columns):
        write(out, j, total[j] * factor * read(weight[j]) + read(bias[j]))
    return mean, factor


@loop_for("void({n}[:, ::1], {n}[:, ::1], {n}[::1], {n}[::1], float32, {n}[:, ::1])")
def add_norm(
    x: Numbers, y: Numbers, weight: Numbers, bias: Numbers, eps: float, out: Numbers
) -> None:
    """Write LayerNorm(x + y) to `out`."""
    rows, columns = x.shape
    total = np.empty(columns, np.float32)
    for r in range(rows):
        x_row, y_row = x[r], y[r]
        for j in range(columns):
            total[j] = read(x_row[j]) + read(y_row[j])
        _norm(total, weight, bias, eps, out[r])


@loop_for(
    "void({n}[:, ::1], {n}[:, ::1], {n}[::1], {n}[::1], float32, int64, uint32, float32, "
    "{n}[:, ::1], {n}[:, ::1], float32[::1], float32[::1])"
)
def dropped_add_norm(
    x: Numbers,
    y: Numbers,
    weight: Numbers,
    bias: Numbers,
    eps: float,
    seed: int,
    threshold: int,
    scale: float,
    total: Numbers,
    out: Numbers,
    means: Numbers,
    factors: Numbers,
) -> None:
    """Write LayerNorm(x + Dropout(y)) to `out`.

    For the backward pass, the loop also writes x + Dropout(y) to `total`, the mean of each row of
    `total` to `means`, and 1 / the standard deviation of each row to `factors`. `seed`, `threshold`
    and `scale` determine the dropout mask: they are the seed, threshold and factor of `keep`.
    """
    rows, columns = x.shape
    kept, rounded = np.empty(columns + columns % 2, np.float32), np.empty(columns, np.float32)
    for r in range(rows):
        x_row, y_row, total_row = x[r], y[r], total[r]
        keep(seed, r, threshold, scale, kept)
        for j in range(columns):
            write(total_row, j, read(x_row[j]) + read(y_row[j]) * kept[j])
            rounded[j] = read(total_row[j])
        means[r], factors[r] = _norm(rounded, weight, bias, eps, out[r])


@loop_for(
    "void({n}[:, ::1], {n}[:, ::1], float32[::1], float32[::1], {n}[::1], int64, uint32, float32, "
    "{n}[:, ::1], {n}[:, ::1], float32[::1], float32[::1])"
)
def dropped_add_norm_backward(
    gradient: Numbers,
    total: Numbers,
    means: Numbers,
    factors: Numbers,
    weight: Numbers,
    seed: int,
    threshold: int,
    scale: float,
    d_x: Numbers,
    d_y: Numbers,
    d_weight: Numbers,
    d_bias: Numbers,
) -> None:
    """Compute the gradients of x and y from the output's `gradient`; write them to `d_x` and `d_y`.

    The gradients of LayerNorm's weight and bias are added to `d_weight` and `d_bias`. The arguments
    from `total` to `scale` have the values that `dropped_add_norm` got or wrote.
    """
    rows, columns = gradient.shape
    kept = np.empty(columns + columns % 2, np.float32)
    normed, inner = np.empty(columns, np.float32), np.empty(columns, np.float32)
    for r in range(rows):
        g_row, total_row, x_row, y_row = gradient[r], total[r], d_x[r], d_y[r]
        mean, factor = means[r], factors[r]
        keep(seed, r, threshold, scale, kept)
        sum_1, sum_2 = f32(0), f32(0)
        for j in range(columns):
            g, n = read(g_row[j]), (read(total_row[j]) - mean) * factor
            d_weight[j] += g * n
            d_bias[j] += g
            g *= read(weight[j])
            sum_1 += g
            sum_2 += g * n
            normed[j], inner[j] = n, g
        sum_1 /= f32(columns)
        sum_2 /= f32(columns)
        for j in range(columns):
            d = factor * (inner[j] - sum_1 - normed[j] * sum_2)
            write(x_row, j, d)
            write(y_row, j, d * kept[j])
