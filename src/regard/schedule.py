"""§5.3 Optimizer: the learning rate rises linearly for warmup_steps, then falls as step^-0.5.

A cooldown, which makes the learning rate fall to 0 at the end of a run, is no part of the paper.
The recipes that `regard train --time` chooses may have a cooldown.
"""


def learning_rate(step: int, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """Equation (3): d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5); steps count from 1.

    `factor` multiplies the learning rate; the paper has no factor.

    >>> round(learning_rate(4000, d_model=512, warmup_steps=4000), 6)
    0.000699
    """
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def cooldown(step: int, begins: int, ends: int) -> float:
    """The factor, from 1 to 0, by which a cooldown multiplies the learning rate of a step.

    It is 1 up to the step `begins`, then falls in a straight line, and is 0 after the step `ends`.

    >>> [cooldown(step, begins=6, ends=9) for step in range(5, 11)]
    [1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    return min(1.0, max(0.0, (ends + 1 - step) / (ends + 1 - begins)))
