"""The softmax over the vocabulary, and its gradient."""

import numpy as np
from numpy import float32 as f32

from regard.arithmetic.loops.numbers import Numbers, exp, largest, loop_for, read, write


@loop_for("void({n}[:, ::1], int64[::1], float32, float32[::1], float32[::1])")
def gradient_of_logits(
    logits: Numbers, labels: Numbers, smoothing: float, right: Numbers, log_p: Numbers
) -> None:
    """Turn logits into softmax - (1 - smoothing) * onehot; `right` gets each label's logit."""
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
