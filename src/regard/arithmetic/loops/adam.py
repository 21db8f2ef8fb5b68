"""§5.3 Adam, for weights with a gradient in bf16."""

import numpy as np
from numpy import float32 as f32

from regard.arithmetic.loops.numbers import Numbers, loop_for, read, write


@loop_for(
    "void(float32[::1], uint16[::1], uint16[::1], float32[::1], float32[::1],"
    " float32, float32, float32, float32, float32, float32)"
)
def adam(
    master: Numbers,
    weights: Numbers,
    gradient: Numbers,
    mean: Numbers,
    variance: Numbers,
    scale: float,
    beta1: float,
    beta2: float,
    size: float,
    root: float,
    epsilon: float,
) -> None:
    """Update the weights `master` and their moments `mean` and `variance` by Adam, in place.

    The gradient is multiplied by `scale` when it is read, and is then set to 0. `weights` becomes a
    copy of `master`, rounded to bf16. `size` is the learning rate / (1 - beta1^step), and `root` is
    1 / sqrt(1 - beta2^step): these two factors correct the bias of the moments.
    """
    for j in range(len(master)):
        g = read(gradient[j]) * scale
        m = mean[j] + (f32(1) - beta1) * (g - mean[j])
        v = beta2 * variance[j] + (f32(1) - beta2) * (g * g)
        mean[j], variance[j] = m, v
        master[j] -= size * m / (np.sqrt(v) * root + epsilon)
        write(weights, j, master[j])
        gradient[j] = 0
