"""The softmax of attention (equation 1), and its gradient."""

import numpy as np
from numpy import float32 as f32

from regard.arithmetic.loops.numbers import Numbers, exp, largest, loop_for, read, write


@loop_for("void({n}[:, :, :, ::1], float32[:, :, :, ::1], float32, {n}[:, :, :, ::1])")
def weights(scores: Numbers, bias: Numbers, factor: float, out: Numbers) -> None:
    """Write softmax(scores * factor + bias), which is taken over the keys, to `out`.

    `scores` and `out` are [rows, heads, queries, keys]. `bias` is [rows or 1, 1, queries or 1,
    keys]. All heads have the same bias. If the bias has one row, it is the same for all rows; if it
    has one query, it is the same for all queries.
    """
    rows, heads, queries, keys = scores.shape
    exps = np.empty(keys, np.float32)
    for r in range(rows):
        for h in range(heads):
            for q in range(queries):
                here, out_row = scores[r, h, q], out[r, h, q]
                own = bias[min(r, bias.shape[0] - 1), 0, min(q, bias.shape[2] - 1)]
                for k in range(keys):
                    exps[k] = read(here[k]) * factor + own[k]
                highest = largest(exps)
                total = f32(0)
                for k in range(keys):
                    exps[k] = exp(exps[k] - highest)
                    total += exps[k]
                inverse = f32(1) / total
                for k in range(keys):
                    write(out_row, k, exps[k] * inverse)


@loop_for("void({n}[:, :, ::1], {n}[:, :, ::1], float32)")
def weights_backward(gradient: Numbers, weights: Numbers, factor: float) -> None:
    """Turn `gradient`, in place, from the gradient of the weights into the gradient of the scores.

    With P for the weights and dP for their gradient, both [rows * heads, queries, keys], the
    gradient of the scores is factor * P * (dP - sum(dP * P)), where the sum is over the keys.
    """
    rows, queries, keys = gradient.shape
    for r in range(rows):
        for q in range(queries):
            row, p = gradient[r, q], weights[r, q]
            total = f32(0)
            for k in range(keys):
                total += read(row[k]) * read(p[k])
            for k in range(keys):
                write(row, k, read(p[k]) * (read(row[k]) - total) * factor)
