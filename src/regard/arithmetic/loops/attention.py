"""The softmax of attention (equation 1), and its gradient."""

import numpy as np
from numpy import float32 as f32

from regard.arithmetic.loops.numbers import Numbers, exp, largest, loop_for, read, write


@loop_for("void({n}[:, :, :, ::1], float32[:, :, :, ::1], float32, {n}[:, :, :, ::1])")
def weights(scores: Numbers, bias: Numbers, factor: float, out: Numbers) -> None:
    """Write softmax(scores * factor + bias); a bias with one row or one query is broadcast."""
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
    """Turn the gradient dP of the weights P into that of the scores: factor P (dP - sum(dP P))."""
    rows, queries, keys = gradient.shape
    for r in range(rows):
        for q in range(queries):
            row, p = gradient[r, q], weights[r, q]
            total = f32(0)
            for k in range(keys):
                total += read(row[k]) * read(p[k])
            for k in range(keys):
                write(row, k, read(p[k]) * (read(row[k]) - total) * factor)
