"""The recipe that learns most from a text in a given time, on this machine.

The machine's speed decides how many target tokens a model learns from. So some training steps of
models are timed, the smallest model first. Each model in rule.toml has a number
`tokens_per_weight`: the target tokens that it needs for each of its weights. The largest model that
learns from enough tokens is chosen, or the smallest model if none does. Only tokens of the first
`most_passes` passes over the text count. Vocabulary and row length depend on the text; the smallest
model also limits the vocabulary. Dropout, label smoothing and cooldown depend on the number of
passes over the text and, if the text is small, on its size. Batch size and warm-up depend on the
number of steps. If a text is too large for the time, a part of it is drawn at random.

The expected loss (`regard.budget.loss`) is computed only to inform the user.
"""

import math
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

from regard.amounts import SECONDS, amount, count_of
from regard.budget.loss import expected_loss, weights_of
from regard.budget.speed import TIMED, tokens_per_second
from regard.budget.text import ParallelText, rule_of_times
from regard.errors import RecipeError, TrainingError
from regard.machine.devices import choose_device
from regard.paper import parameters
from regard.presets import SMALL
from regard.recipe import Recipe, assigned_field
from regard.run.model_directory import matrices_misfit

BUDGETS = (10.0, 60.0, 480.0, 4320.0)
"""The times, in minutes, that `for_several_times` compares."""
USED = 0.9
"""The share of the time for timing models and for training steps. The rest is for preparing the
data and a first embedding (`regard.run.first_embedding`), for validating and for saving."""
NO_LIMIT = 2**31 - 1
"""The number of steps in a recipe that is chosen for a time, so that only the time ends the run. If
the user sets `training.minutes = 0` for a new run, its recipe has the expected number of steps."""
FILLED = 0.97
"""The expected share of a batch's target tokens that are not padding: 0.92 to 0.99 in the runs of
experiments/budget. It is less if targets have fewer tokens than their sources."""
CHECKPOINTS, AVERAGED = 30, 9
"""A run saves about CHECKPOINTS checkpoints, and averages at most AVERAGED of them: those saved
nearest to the step of the best validation. A run with a cooldown and without patience averages
none, because its best checkpoint alone translates better (experiments/budget)."""
APART, RAREST = 100, 5
"""Validations are at least APART steps apart, because each takes as long as about ten steps. In a
run of few steps, they may be closer, so that at least every RAREST-th checkpoint is validated."""
VALIDATED = 100
"""Each validation translates this many sentences for a BLEU score that is only shown."""
LEAST_STEPS = 3000
"""Batches are halved, down to rule.toml's least size, until this many steps fit in the time."""
WARM_UP = 1 / 6
"""Warm-up takes at most this share of a run, but at least 20 steps. In a short run, the learning
rate reaches the same peak after fewer steps."""
LONGEST_STEP, TIMING = 3.0, 0.2
"""The smallest model is timed. A larger model is not timed if its step would take more than
LONGEST_STEP seconds, or if timing smaller models has already taken the share TIMING of the run's
time. The speed of the larger model is then computed from the speed of a smaller model."""


class Choice(NamedTuple):
    """A recipe, and what is expected of a run with this recipe."""

    recipe: Recipe
    tokens_per_second: float
    """The number of target tokens that training learns from in a second."""
    steps: int
    epochs: float
    """The number of passes over the text."""
    tokens_per_weight: float
    """Target tokens per weight outside the embedding; at most `most_passes` passes are counted."""
    loss: float
    """The expected loss, in nats per character of the target."""
    perplexity: float
    """The expected perplexity of unseen text, per sub-word."""

    def sentences(self) -> list[str]:
        """Three sentences that say what is trained, for how long, and what is expected."""
        model, data = self.recipe.model, self.recipe.data
        return [
            f"the run {self._length()}: this machine learns from "
            f"{self.tokens_per_second:,.0f} target tokens a second{self._drawn()}",
            f"{model.depth} layers of d_model {model.d_model}: for each weight there are "
            f"{self.tokens_per_weight:.2g} tokens to learn from, counting at most "
            f"{rule_of_times()['size']['most_passes']:.0f} passes; each pair is seen "
            f"{self.epochs:.3g} times, so dropout is {model.dropout} and label smoothing "
            f"{self.recipe.training.label_smoothing}{self._cooldown()}",
            f"vocabulary {self.recipe.tokenizer.vocabulary:,}, batches of {data.target_tokens:,} "
            f"tokens; expected perplexity of unseen text: about {self.perplexity:.2g} a sub-word"
            f"{self._words()}",
        ]

    def _drawn(self) -> str:
        """Say which part of the pairs is used, if not all of them."""
        share = self.recipe.data.share
        used = f"; {100 * share:.2g}% of the pairs are used, drawn at random (data.share)"
        return used * (share < 1)

    def _cooldown(self) -> str:
        """Say over which part of the run the learning rate falls to 0, if over any."""
        part = self.recipe.training.cooldown
        return f"; over the last {part:.0%} of the steps, the learning rate falls to 0" * (part > 0)

    def _words(self) -> str:
        """Say how BLEU divides text into words, if that is unusual."""
        words = self.recipe.training.bleu_tokenizer
        return "" if words == "13a" else f"; BLEU divides words by {words} (docs/scores.md)"

    def _length(self) -> str:
        """Say what ends the run, its time or its number of steps, and estimate the other."""
        by = self.recipe.training
        if by.minutes and self.steps < by.steps:
            return f"takes {amount(60 * by.minutes, SECONDS)}, about {count_of(self.steps, 'step')}"
        seconds = _tokens_of_step(self.recipe) * self.steps / (USED * self.tokens_per_second)
        limit = "" if by.minutes else "has no limit of time and "
        return f"{limit}takes {count_of(self.steps, 'step')}, about {amount(seconds, SECONDS)}"


Speed = Callable[[Recipe, ParallelText], float]
"""A function that returns how many target tokens training learns from in a second; it raises
TrainingError if the memory is too small for the recipe's model."""


def choose(
    corpus: ParallelText, minutes: float, measure: Speed | None = None, asked: tuple[str, ...] = ()
) -> Choice:
    """Choose the recipe that is expected to be best after this time.

    `measure`, by default `tokens_per_second`, is called for one model after the other, smallest
    first, until a model would learn from too few tokens for its size, or does not fit the memory.
    If batches become smaller because few steps fit in the time, `measure` is called again with
    these batches. If timing a model would take long, its speed is computed from the speed of the
    last model that was timed. The time of these calls is subtracted from the time for training. If
    timing the last model took more than TIMED seconds, the excess is subtracted once more: on a
    GPU, the excess is the time of compiling, and training compiles the model again. Training keeps
    at least a third of the whole time. `asked` are the user's changes, as `Recipe.set` takes them;
    every recipe keeps them. Raises TrainingError if even the smallest model cannot be trained (see
    `tokens_per_second`); RecipeError if `asked` is invalid, or unfit for tokenizer or machine.
    """
    return _choose(corpus, minutes, partial(_timed, measure or tokens_per_second), asked)


def _choose(
    corpus: ParallelText,
    minutes: float,
    measure: Callable[[Recipe, ParallelText], tuple[float, float]],
    asked: tuple[str, ...],
) -> Choice:
    """Do what `choose` does; `measure` returns a speed, and the seconds that measuring took."""
    best: tuple[ParallelText, Recipe, float] | None = None
    timed, speed, taken, batch = 0, 0.0, list[float](), NO_LIMIT
    whole = left = 60 * minutes
    for recipe, (text, least) in _starts(corpus, asked).items():
        size = parameters(recipe.model, *text.target_and_source(recipe))
        if not timed or (
            sum(taken) < TIMING * whole
            and recipe.data.target_tokens * size / (speed * timed) < LONGEST_STEP
        ):
            began = time.monotonic()
            try:
                batched = recipe
                if recipe.data.target_tokens > batch:
                    batched = recipe.but(source_tokens=batch, target_tokens=batch).set(*asked)
                speed, seconds = measure(batched, text)
                smaller = _in_smaller_batches(batched, USED * whole * speed, asked)
                batch = smaller.data.target_tokens
                if smaller.data != batched.data:  # a smaller batch is also slower per token
                    speed, more = measure(smaller, text)
                    seconds += more
            except TrainingError:  # the model is too large for the memory
                if best is None:
                    raise
                left = max(whole / 3, left - (time.monotonic() - began))
                break
            timed = size
            taken.append(seconds)
        left = max(whole / 3, USED * whole - sum(taken) - max(0.0, taken[-1] - TIMED))
        computed = speed * timed / size
        found = _expected(text, minutes, left, recipe, computed, asked)
        if best is not None and found.tokens_per_weight < least:
            break
        best = text, recipe, computed
    assert best is not None
    text, recipe, computed = best
    return _expected(text, minutes, left, recipe, computed, asked)


def _timed(measure: Speed, recipe: Recipe, corpus: ParallelText) -> tuple[float, float]:
    """The result of `measure`, and the number of seconds that this call took."""
    began = time.monotonic()
    return measure(recipe, corpus), time.monotonic() - began


def with_time(recipe: Recipe, minutes: float) -> Recipe:
    """The recipe of a run, with another limit of its time.

    If the recipe was chosen for a time, the numbers of steps between checkpoints, and between
    validations, change with the time: the whole run still has about CHECKPOINTS checkpoints.
    """
    by = recipe.training
    if not minutes or not by.minutes or by.steps != NO_LIMIT:
        return recipe.but(minutes=minutes)
    share = minutes / by.minutes
    saved = by.save_every and max(1, round(share * by.save_every))
    if saved:
        share = saved / by.save_every  # so that validated steps are still steps that are saved
    every = max(1, round(share * by.validate_every))
    return recipe.but(minutes=minutes, validate_every=every, save_every=saved)


def for_several_times(corpus: ParallelText, minutes: float, asked: tuple[str, ...]) -> list[Choice]:
    """The choices for `minutes` and for each time in BUDGETS, from the shortest time on.

    A recipe that several choices time on the same text is timed only once.
    """
    timed = cache(partial(_timed, tokens_per_second))
    return [_choose(corpus, each, timed, asked) for each in sorted({minutes, *BUDGETS})]


def _starts(
    corpus: ParallelText, asked: tuple[str, ...]
) -> dict[Recipe, tuple[ParallelText, float]]:
    """Map the recipe of each model in rule.toml, smallest first, to a text and a number.

    The text is `corpus`. If `asked` does not set the size of the vocabulary, the text has the
    model's limit on this size (`most`). The number is how many target tokens the model needs for
    each weight. If `asked` makes several recipes equal, the values of the first one are kept.
    """
    is_asked = "tokenizer.vocabulary" in map(assigned_field, asked)
    recipes: dict[Recipe, tuple[ParallelText, float]] = {}
    for model in rule_of_times()["model"]:
        fields = dict(model)
        least, most = fields.pop("tokens_per_weight"), fields.pop("vocabulary")
        text = corpus if is_asked else corpus._replace(most=most)
        recipes.setdefault(_start(text, fields, asked), (text, least))
    return recipes


def _start(corpus: ParallelText, fields: dict[str, Any], asked: tuple[str, ...]) -> Recipe:
    """The recipe with these fields of rule.toml, before the number of steps is known.

    Raises RecipeError if the recipe has one embedding matrix for source and target, but the
    tokenizer has a vocabulary for each.
    """
    batch = rule_of_times()["batch"][choose_device().type]
    tokens = {"source_tokens": batch, "target_tokens": batch}
    kept = {"average": AVERAGED, "keep": AVERAGED}
    others = {name: value for name, value in fields.items() if name != "rate"}
    recipe = corpus.suited(SMALL.but(**others, **tokens, **kept)).set(*asked)
    recipe = recipe.but(rate=fields["rate"][recipe.training.optimizer]).set(*asked)
    if corpus.tokenizer and (problem := matrices_misfit(recipe.model, corpus.tokenizer)):
        raise RecipeError(problem)
    return recipe


def _in_smaller_batches(start: Recipe, tokens: float, asked: tuple[str, ...]) -> Recipe:
    """The recipe with batches so small that `tokens` make LEAST_STEPS steps, if possible.

    Adam's learning rate falls with the square root of the batch size, because the gradient of a
    smaller batch is noisier. Muon keeps its rate: in experiments/budget, a lower rate gave a higher
    perplexity.
    """
    least, batch = rule_of_times()["batch"]["least"], start.data.target_tokens
    while batch // 2 >= least and tokens < LEAST_STEPS * FILLED * batch * start.training.accumulate:
        batch //= 2
    smaller = start.but(source_tokens=batch, target_tokens=batch).set(*asked)
    if smaller.training.optimizer == "muon":
        return smaller
    share = smaller.data.target_tokens / start.data.target_tokens
    return smaller.but(rate=start.training.rate * share**0.5).set(*asked)


def _expected(
    corpus: ParallelText,
    minutes: float,
    seconds: float,
    start: Recipe,
    speed: float,
    asked: tuple[str, ...],
) -> Choice:
    """Complete the recipe `start` for a run of this many minutes; estimate its loss.

    Training has `seconds` of this time. `speed` is in target tokens per second.
    """
    rule, affordable = rule_of_times(), seconds * speed
    limited = start.but(minutes=minutes).set(*asked)
    batched = _in_smaller_batches(limited, affordable, asked)
    steps, tokens = _duration(batched, affordable, asked)
    counted = corpus.passes(tokens)
    regular = next(row for row in rule["passes"] if counted <= row["epochs"])
    longest, interval = batched.training.warmup_steps, max(1, steps // CHECKPOINTS)
    warmed = batched.but(warmup_steps=max(20, min(longest, int(steps * WARM_UP)))).set(*asked)
    shaped = warmed.but(cooldown=regular["cooldown"]).set(*asked)
    recipe = shaped.but(
        share=corpus.enough(tokens),
        average=1 if shaped.training.cooldown and not shaped.training.patience else AVERAGED,
        dropout=regular["dropout"],
        label_smoothing=regular["label_smoothing"],
        steps=NO_LIMIT if warmed.training.minutes else steps,
        rate=warmed.training.rate * (warmed.training.warmup_steps / longest) ** 0.5,
        validate_every=min(steps, interval * min(RAREST, math.ceil(APART / interval))),
        validate_sentences=VALIDATED,
        save_every=interval,
        best="loss",
        tune=True,
    ).set(*asked)
    weights = weights_of(recipe)
    per_weight = min(tokens, rule["size"]["most_passes"] * corpus.tokens) / weights
    loss = expected_loss(weights, tokens, corpus.tokens)
    if recipe.training.label_smoothing == regular["label_smoothing"]:
        loss += regular["loss"]
    target, _ = corpus.target_and_source(recipe)
    most = math.log(target)  # the loss if all tokens are equally likely
    perplexity = math.exp(min(most, loss * corpus.characters / corpus.tokens))
    drawn = 1.0 if "data.share" in map(assigned_field, asked) else recipe.data.share
    epochs = tokens / corpus.tokens / drawn  # if `asked` sets the share, `corpus` is that share
    return Choice(recipe, speed, steps, epochs, per_weight, loss, perplexity)


def _duration(recipe: Recipe, affordable: float, asked: tuple[str, ...]) -> tuple[int, float]:
    """The number of training steps, and the number of target tokens that the model learns from.

    In the given time, the model can learn from `affordable` tokens. If `asked` sets a number of
    steps, this number is returned, unless the time is limited and too short for so many steps.
    """
    steps = max(1, round(affordable / _tokens_of_step(recipe)))
    wanted = recipe.training.steps if "training.steps" in map(assigned_field, asked) else steps
    if wanted < steps or not recipe.training.minutes:
        return wanted, affordable * wanted / steps
    return steps, affordable


def _tokens_of_step(recipe: Recipe) -> float:
    """The expected number of target tokens that a step learns from."""
    return FILLED * recipe.data.target_tokens * recipe.training.accumulate
