"""Fit the rule of regard/budget/rule.toml to the journals of the study; print it and its error.

    python experiments/budget/fit.py

A validation is fitted only if no other one, of a model of the same size, has a lower loss after as
many tokens or fewer. Two constants are assumed, not fitted, since the study has long runs of one
size only: `a` equals `b`, and `size` makes the model that learns from RATIO tokens for each weight
the best of all models that take the same number of operations. The other constants are found by
random search from a fixed seed.
"""

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from study import study

from regard.budget.loss import expected_loss, weights_of
from regard.recipe import Recipe

HERE = Path(__file__).parent
RATIO = 10.0
"""Tokens, discounted for repetition, for each weight outside the embedding."""
FIELDS = ("base", "data", "b", "repeats")
BOUNDS = np.array([(0.1, 0.35), (1.0, 1e5), (0.1, 1.0), (5.0, 60.0)])
SMOOTHING = 0.1
"""The label smoothing of the fitted runs. More of it makes the loss larger, but not BLEU lower."""
LEFT_OUT = {"muon-smoothing-01-seed-2"}
"""Runs that were made after the fit. With them, the random search ends at a bound of `repeats`."""
FIRST_STEP = 1250
"""Validations before this step say more about the warm-up than about the text."""
CHARACTERS_PER_TOKEN = {("multi30k-de", 4000): 4.073, ("multi30k-de", 8000): 4.522}
"""Characters of the validation set for each of its sub-words, by corpus and vocabulary."""
DIFFERENT = {("multi30k-de", 4000): 528_000.0, ("multi30k-de", 8000): 458_529.0}
"""Target sub-words of the training set: tokens beyond this number are repetitions."""


def main() -> None:
    """Fit, and print the constants and the mean error."""
    _, runs = study()
    points = lowest([point for name in runs for point in points_of(name, runs[name])])
    best, error = np.full(len(FIELDS), np.nan), np.inf
    random = np.random.default_rng(1)
    low, high = np.log(BOUNDS).T
    spread = 1.0
    for trial in range(60_000):
        drawn = random.uniform(low, high)
        found = np.clip(best + spread * random.normal(size=len(best)), low, high)
        found = drawn if trial < 5000 else found
        now = float(np.abs(predicted(rule_of(np.exp(found)), points) - points[:, 3]).mean())
        if now < error:
            best, error = found, now
        spread = max(0.003, spread * 0.9999)
    rule = rule_of(np.exp(best))
    lines = ["[loss]", *(f"{name} = {value:.4g}" for name, value in rule.items())]
    lines.append(f"# mean error {error:.4f} nats per character, of {len(points)} validations")
    sys.stdout.write("\n".join(lines) + "\n")


def rule_of(fitted: NDArray[np.float64]) -> dict[str, float]:
    """All constants of the rule, computed from the fitted ones."""
    base, data, b, repeats = fitted.tolist()
    return {"base": base, "size": data / RATIO**b, "a": b, "data": data, "b": b, "repeats": repeats}


def lowest(points: list[tuple[float, float, float, float]]) -> NDArray[np.float64]:
    """The points whose loss no other point, of as many weights, beats without more tokens."""
    kept = [
        one
        for one in points
        if not any(o[0] == one[0] and o[1] <= one[1] and o[3] < one[3] for o in points)
    ]
    return np.array(kept)


def points_of(name: str, settings: dict[str, object]) -> list[tuple[float, float, float, float]]:
    """The validations of a run: (weights, target tokens, different tokens, loss per character).

    The list is empty if the run has no journal, is in LEFT_OUT, has a cooldown or another label
    smoothing than SMOOTHING, or if the corpus is not counted above.
    """
    settings, path = dict(settings), HERE / "journals" / f"{name}.jsonl"
    text = str(settings.pop("corpus")), settings.pop("vocabulary")
    if name in LEFT_OUT or text not in DIFFERENT:
        return []
    start = Recipe.read(HERE / "start.toml", {"small": Recipe()})
    changes = [f"{field}={json.dumps(value)}" for field, value in settings.items()]
    recipe = start.set(*changes)
    if recipe.training.label_smoothing != SMOOTHING or recipe.training.cooldown:
        return []
    weights = weights_of(recipe)
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    tokens = {r["step"]: r["target_tokens"] for r in records if r["event"] == "step"}
    return [
        (weights, tokens[r["step"]], DIFFERENT[text], r["loss"] / CHARACTERS_PER_TOKEN[text])
        for r in records
        if r["event"] == "validation" and r["step"] in tokens and r["step"] >= FIRST_STEP
    ]


def predicted(rule: dict[str, float], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The loss that `regard.budget.choice` expects at each point."""
    return np.array([expected_loss(int(w), tokens, u, rule) for w, tokens, u, _ in points])


if __name__ == "__main__":
    main()
