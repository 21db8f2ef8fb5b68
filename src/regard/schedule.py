"""§5.3 Optimizer: the learning rate rises linearly for warmup_steps, then falls as step^-0.5."""


def learning_rate(step: int, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """Equation (3): d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5); steps count from 1.

    `factor` multiplies the learning rate; the paper has no factor.

    >>> round(learning_rate(4000, d_model=512, warmup_steps=4000), 6)
    0.000699
    """
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
