"""Fit the rule of regard/budget.toml to the journals of the study, and print it with its errors.

    python experiments/budget/fit.py

For each corpus and model the lowest loss over dropouts is fitted, after each number of steps. The
constants are found by random search with shrinking steps, from a fixed seed.
"""

import json
import sys
import tomllib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.budget import expected_loss, weights_of
from regard.recipe import Recipe

HERE = Path(__file__).parent
FIELDS = ("base", "size", "a", "data", "b", "repeats")
BOUNDS = np.array([(0.01, 0.4), (0.1, 1e4), (0.1, 1.0), (1.0, 1e5), (0.1, 1.0), (5.0, 200.0)])
CHARACTERS_PER_TOKEN = {"multi30k-de": 4.073}
"""Characters of the validation set for each of its sub-words, with 4,000 of them."""
DIFFERENT = {"multi30k-de": 528_000.0}
"""Target sub-words of the training set."""


def main() -> None:
    """Fit, and print the constants and the largest error of each run."""
    runs = tomllib.loads((HERE / "runs.toml").read_text())["run"]
    points = np.array([point for name in runs for point in points_of(name, runs[name])])
    best, error = np.full(6, np.nan), np.inf
    random = np.random.default_rng(1)
    low, high = np.log(BOUNDS).T
    spread = 1.0
    for trial in range(60_000):
        around = best if trial > 5000 else random.uniform(low, high)
        found = np.clip(around + spread * random.normal(size=6) * (trial > 5000), low, high)
        now = float(np.abs(predicted(np.exp(found), points) - points[:, 3]).mean())
        if now < error:
            best, error = found, now
        spread = max(0.003, spread * 0.9999)
    rule = dict(zip(FIELDS, np.exp(best).tolist(), strict=True))
    lines = ["[loss]", *(f"{name} = {value:.4g}" for name, value in rule.items())]
    lines.append(f"# mean error {error:.4f} nats per character, of {len(points)} validations")
    sys.stdout.write("\n".join(lines) + "\n")
    assert abs(expected_loss(10**6, 1e7, 1e6, rule) - predicted(np.exp(best), example())[0]) < 1e-9


def example() -> NDArray[np.float64]:
    """One point, by which the fitted formula is compared with that of the package."""
    return np.array([[1e6, 1e7, 1e6, 0.0]])


def points_of(name: str, settings: dict[str, object]) -> list[tuple[float, float, float, float]]:
    """(weights, target tokens, different ones, loss per character) of a run's validations."""
    settings, path = dict(settings), HERE / "journals" / f"{name}.jsonl"
    corpus = str(settings.pop("corpus"))
    settings.pop("vocabulary")
    start = Recipe.read(HERE / "start.toml", {"small": Recipe()})
    weights = weights_of(start.set(*(f"{field}={value}" for field, value in settings.items())))
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    tokens = {r["step"]: r["target_tokens"] for r in records if r["event"] == "step"}
    return [
        (weights, tokens[r["step"]], DIFFERENT[corpus], r["loss"] / CHARACTERS_PER_TOKEN[corpus])
        for r in records
        if r["event"] == "validation" and r["step"] in tokens and r["step"] >= 1000
    ]


def predicted(rule: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The formula of `regard.budget` for many points at once."""
    base, size, a, data, b, r = rule
    weights, tokens, different, _ = points.T
    repeated = np.maximum(0.0, tokens / different - 1)
    worth = np.minimum(tokens, different) + different * r * (1 - np.exp(-repeated / r))
    return np.asarray(base + size / weights**a + data / worth**b)


if __name__ == "__main__":
    main()
