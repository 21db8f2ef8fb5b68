"""The loss that a model is expected to reach on unseen text.

Repeated tokens count less: if a text of U tokens is repeated until the model has learned from T
tokens (T > U), these T tokens teach as much as E tokens of new text (r is `repeats`):

    E = U + U r (1 - exp(-(T / U - 1) / r))

A model with P weights outside its embedding is expected to reach

    loss = base + size / P^a + data / E^b       nats per character of the target

The constants are in rule.toml; experiments/budget says how some of them were found.
"""

import math
from collections.abc import Mapping

from regard.budget.text import rule_of_times
from regard.paper import parameters
from regard.recipe import Recipe


def weights_of(recipe: Recipe) -> int:
    """The number of parameters that a model with an empty vocabulary would have.

    Embeddings of tokens, the matrix before the softmax and the biases of the logits do not count.
    """
    return parameters(recipe.model, 0)


def worth(tokens: float, different: float, repeats: float) -> float:
    """The number of tokens of new text that teach as much as repeated text.

    A text of `different` tokens (U in the module's first formula) is repeated until the model has
    learned from `tokens` tokens (T). `repeats` is r. The result is E or, if T is at most U, T.
    """
    again = max(0.0, tokens / different - 1)
    return min(tokens, different) + different * repeats * (1 - math.exp(-again / repeats))


def expected_loss(
    weights: int, tokens: float, different: float, rule: Mapping[str, float] | None = None
) -> float:
    """The loss by the second formula in this module's docstring, in nats per target character.

    `weights` is P. A text of `different` target tokens (U) is repeated until the model has learned
    from `tokens` target tokens (T). `rule` has the constants; by default, they are read from
    rule.toml.
    """
    rule = rule or rule_of_times()["loss"]
    effective = worth(tokens, different, rule["repeats"])
    of_size, of_data = rule["size"] / weights ** rule["a"], rule["data"] / effective ** rule["b"]
    return float(rule["base"] + of_size + of_data)
