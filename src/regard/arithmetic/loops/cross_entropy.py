"""Loops that compute the gradient of the loss with respect to the logits (§5.4).

The equations are in `regard.arithmetic.cross_entropy` for one forward pass, and in
`regard.arithmetic.consistency` for two.
"""

import numpy as np
from numpy import float32 as f32

from regard.arithmetic.loops.numbers import Numbers, exp, largest, loop_for, read, write


@loop_for("void({n}[:, ::1], int64[::1], float32, float32[::1], float32[::1])")
def gradient_of_logits(
    logits: Numbers, labels: Numbers, smoothing: float, right: Numbers, log_p: Numbers
) -> None:
    """Turn logits, [tokens, vocabulary], into softmax - (1 - smoothing) * onehot, in place.

    In each row, `onehot` is 1 at the token's label. The caller adds the rest of the gradient of
    label smoothing. The logit of each label is written to `right`, and the natural logarithm of the
    probability of each label to `log_p`.
    """
    rows, columns = logits.shape
    exps = np.empty(columns, np.float32)
    for r in range(rows):
        row = logits[r]
        highest = largest(row)
        total = f32(0)
        for j in range(columns):
            exps[j] = exp(read(row[j]) - highest)
            total += exps[j]
        label = labels[r]
        right[r] = read(row[label])
        log_p[r] = right[r] - highest - np.log(total)
        inverse = f32(1) / total
        for j in range(columns):
            write(row, j, exps[j] * inverse)
        write(row, label, exps[label] * inverse + (smoothing - f32(1)))


@loop_for(
    "void({n}[:, ::1], {n}[:, ::1], int64[::1], float32, float32, float32[::1], float32[::1], "
    "float32[::1])"
)
def gradients_of_pairs(
    first: Numbers,
    second: Numbers,
    labels: Numbers,
    smoothing: float,
    weight: float,
    right: Numbers,
    log_p: Numbers,
    divergence: Numbers,
) -> None:
    """Turn the logits of two forward passes into their gradients, in place.

    The loop computes the same numbers as `consistency.pair_gradient`. It writes the fields of
    `PairLosses` to `right`, `log_p` and `divergence`.
    """
    rows, columns = first.shape
    p, q = np.empty(columns, np.float32), np.empty(columns, np.float32)
    apart, half, part = np.empty(columns, np.float32), f32(0.5), f32(0.25) * weight
    for r in range(rows):
        one, other, label = first[r], second[r], labels[r]
        highest, other_highest = largest(one), largest(other)
        total, other_total = f32(0), f32(0)
        for j in range(columns):
            a, b = read(one[j]), read(other[j])
            apart[j] = a - b
            p[j], q[j] = exp(a - highest), exp(b - other_highest)
            total += p[j]
            other_total += q[j]
        log_total, log_other = highest + np.log(total), other_highest + np.log(other_total)
        a, b = read(one[label]), read(other[label])
        right[r], log_p[r] = half * (a + b), half * (a - log_total + b - log_other)
        inverse, other_inverse, shift = f32(1) / total, f32(1) / other_total, log_total - log_other
        p_to_q, q_to_p = f32(0), f32(0)
        for j in range(columns):
            p[j], q[j], apart[j] = p[j] * inverse, q[j] * other_inverse, apart[j] - shift
            p_to_q += p[j] * apart[j]
            q_to_p -= q[j] * apart[j]
        divergence[r] = p_to_q + q_to_p
        for j in range(columns):
            moved = p[j] - q[j]
            p[j] = half * p[j] + part * (moved + p[j] * (apart[j] - p_to_q))
            q[j] = half * q[j] - part * (moved + q[j] * (apart[j] + q_to_p))
        p[label] -= half * (f32(1) - smoothing)
        q[label] -= half * (f32(1) - smoothing)
        for j in range(columns):
            write(one, j, p[j])
            write(other, j, q[j])
