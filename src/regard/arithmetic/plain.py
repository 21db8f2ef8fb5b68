"""The plain implementation, which computes each equation by its definition."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.adam import adam

from regard.attention import attention, segment_mask
from regard.cache import Cache
from regard.equations import Adam, Arithmetic, Learned, Mask, Ranking
from regard.hypotheses import Choosing, Chosen, Hypotheses, choose_best, most_likely, ranking
from regard.loss import consistency_loss, smoothed_loss
from regard.recurrence import first_state, lstm_cell


class Plain(Arithmetic):
    """Computes every equation by its definition, on any device, in any precision.

    The methods of `Arithmetic` state the shapes of all tensors.
    """

    def mask(self, allowed: Tensor) -> Mask:
        """A mask that holds `allowed` unchanged."""
        return Mask(allowed)

    def mask_of_segments(self, queries: Tensor, keys: Tensor, *, causal: bool = False) -> Mask:
        """The mask that allows only keys of the query's own segment (one sentence of a row).

        With `causal`, the mask also excludes keys at later positions than the query.
        """
        return self.mask(segment_mask(queries, keys, causal=causal))

    def cache(self, keys: Tensor, values: Tensor) -> Cache:
        """A cache of exactly these keys and values, without unused slots for later tokens."""
        return Cache(keys, values)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float = 0.0
    ) -> Tensor:
        """Equation (1), by `regard.attention.attention`."""
        return attention(query, key, value, mask.allowed, dropout)[0]

    def weigh(self, scores: Tensor, values: Tensor, mask: Mask, dropout: float = 0.0) -> Tensor:
        """The softmax of the scores that the mask allows, then the weighted sum of the values."""
        weights = scores.masked_fill(~mask.allowed, torch.finfo(scores.dtype).min).softmax(-1)
        weights = weights.masked_fill(~mask.allowed, 0.0)
        return (self.drop(weights, dropout) if dropout else weights) @ values

    def lstm(self, x: Tensor, of_input: nn.Linear, of_state: nn.Linear) -> Tensor:
        """The LSTM, one position after another, by `regard.recurrence.lstm_cell`."""
        from_input = self.linear(x, of_input)
        h, cell = first_state(x, len(x), of_state.in_features)
        outputs = []
        for position in range(x.shape[1]):
            h, cell = lstm_cell(from_input[:, position] + self.linear(h, of_state), cell)
            outputs.append(h)
        return torch.stack(outputs, dim=1)

    def linear(self, x: Tensor, *layers: nn.Linear, relu: bool = False) -> Tensor:
        """x W^T + b of each layer, joined in the last dimension; with `relu`, max(0, x W^T + b)."""
        y = torch.cat([F.linear(x, layer.weight, layer.bias) for layer in layers], dim=-1)
        return F.relu(y) if relu else y

    def add_norm(self, x: Tensor, y: Tensor, norm: nn.LayerNorm, dropout: float = 0.0) -> Tensor:
        """LayerNorm(x + Dropout(y)), by torch.nn.LayerNorm."""
        out: Tensor = norm(x + self.drop(y, dropout))
        return out

    def drop(self, x: Tensor, dropout: float) -> Tensor:
        """Dropout(x), by torch.nn.functional.dropout."""
        return F.dropout(x, dropout)

    def logits(self, x: Tensor, embedding: nn.Embedding, bias: Tensor | None = None) -> Tensor:
        """x E^T, plus `bias` if given; E is the matrix of `embedding`."""
        return F.linear(x, embedding.weight, bias)

    def cross_entropy(
        self,
        states: Tensor,
        embedding: Tensor,
        labels: Tensor,
        smoothing: float,
        consistency: float = 0.0,
    ) -> tuple[Tensor, Tensor]:
        """The smoothed and the plain loss, by the functions of `regard.loss`."""
        logits = F.linear(states, embedding)
        if consistency:
            first, second = logits.chunk(2)
            smoothed, plain = consistency_loss(first, second, labels, smoothing, consistency)
        else:
            smoothed, plain = smoothed_loss(logits, labels, smoothing)
        return smoothed, plain.detach()

    def most_likely(
        self, live: Tensor, logits: Tensor, never: tuple[int, ...], count: int
    ) -> Ranking:
        """The `count` most likely continuations, by `regard.hypotheses.most_likely`."""
        return most_likely(live, logits, never, count)

    def choose(
        self,
        candidates: Hypotheses,
        finished: Hypotheses,
        max_lengths: Tensor,
        length: Tensor,
        rules: Choosing,
    ) -> Chosen:
        """The hypotheses after a step, and which sentences go on, by `hypotheses.choose_best`."""
        return choose_best(candidates, finished, max_lengths, length, rules, self.rank)

    def rank(self, values: Tensor, count: int) -> Tensor:
        """The indices of the `count` largest values of each sentence, as `ranking` gives them."""
        return ranking(values, count)

    def adam(self, learned: Learned, constants: Adam, rate: float, tokens: int | Tensor) -> None:
        """Update the weights by PyTorch's Adam, without its fused kernel."""
        gradient = learned.gradient.float() / tokens
        torch_adam(learned, gradient, constants, rate)


def torch_adam(
    learned: Learned,
    gradient: Tensor,
    constants: Adam,
    rate: float,
    grad_scale: Tensor | None = None,
) -> None:
    """Update the weights and moments of `learned` by PyTorch's Adam.

    `gradient` is the fp32 gradient to use; `learned.gradient` is set to 0. If `grad_scale` is
    given, PyTorch's fused Adam is used, which divides `gradient` by `grad_scale`.
    """
    master, weights, _, moments = learned
    adam(
        [master], [gradient], [moments.mean], [moments.variance], [], [moments.updates],
        foreach=False, fused=grad_scale is not None, grad_scale=grad_scale,
        beta1=constants.beta1, beta2=constants.beta2, lr=rate, eps=constants.epsilon,
        weight_decay=0.0, amsgrad=False, maximize=False,
    )  # fmt: skip
    if weights is not master:
        weights.copy_(master)
    learned.gradient.zero_()


PLAIN = Plain()
"""The implementation of the equations that a new model has, until another one is selected."""
