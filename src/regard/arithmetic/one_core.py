"""Implementations for a thread that uses one core: loops do the work between matrix products.

PyTorch passes over all numbers once for each operation; a loop does several operations in one pass,
on one core. In `regard.arithmetic`, only this module and `few_rows` import loops. Both are
imported only when loops are needed: the loops of this module take 0.25 s to load and, the first
time on a machine, 10 to 20 s to compile.
"""

import math
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.arithmetic.consistency import PairLosses
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.dropout import draw_seed, threshold
from regard.arithmetic.inference import Inference
from regard.arithmetic.int8 import Rounded
from regard.arithmetic.loops import adam as adam_loops
from regard.arithmetic.loops import attention as attention_loops
from regard.arithmetic.loops import cross_entropy as cross_entropy_loops
from regard.arithmetic.loops import int8 as int8_loops
from regard.arithmetic.loops import linear as linear_loops
from regard.arithmetic.loops import residual as residual_loops
from regard.arithmetic.loops import search as search_loops
from regard.equations import Adam, Learned, Ranking
from regard.hypotheses import Choosing, Chosen, Hypotheses
from regard.machine.threads import side_by_side


def array(x: Tensor) -> NDArray[Any]:
    """The memory of a CPU tensor, as an array for loops; bf16 becomes unsigned 16-bit integers."""
    x = x.detach()
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


def rows(x: Tensor) -> NDArray[Any]:
    """A tensor as a matrix that a loop reads: all dimensions except the last are flattened."""
    return array(x.reshape(-1, x.shape[-1]).contiguous())


def rows_of(x: Tensor) -> NDArray[Any]:
    """A contiguous tensor as a matrix to which a loop writes; it is flattened as by `rows`."""
    return array(x.view(-1, x.shape[-1]))


def arrays(hypotheses: Hypotheses) -> tuple[NDArray[Any], ...]:
    """The fields of hypotheses as arrays for loops."""
    return tuple(field.contiguous().numpy() for field in hypotheses)


class Loops(Cpu):
    """Like `Cpu`, but compiled loops do most of the work between matrix products."""

    def attention_weights(
        self, scores: Tensor, bias: Tensor, factor: float, dropout: float
    ) -> Tensor:
        """softmax(scores * factor + bias), in the scores' precision; with `dropout`, in fp32."""
        if dropout:
            return super().attention_weights(scores, bias, factor, dropout)
        scores = scores.contiguous()
        out = torch.empty_like(scores)
        attention_loops.weights(array(scores), array(bias.contiguous()), factor, array(out))
        return out

    def attention_weights_backward(
        self, gradient: Tensor, weights: Tensor, factors: Tensor | None, factor: float
    ) -> Tensor:
        """Return the gradient of the scores; without dropout, it is written over `gradient`."""
        if factors is not None:
            return super().attention_weights_backward(gradient, weights, factors, factor)
        attention_loops.weights_backward(array(gradient), array(weights), factor)
        return gradient

    def sum_gradients(self, gradient: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the gradients of x W^T + b and of b, from the gradient of the layer's output.

        y is the layer's output, max(0, x W^T + b); it is None if the layer has no ReLU.
        """
        d_bias = torch.zeros(gradient.shape[-1])
        if y is None:
            linear_loops.column_sums(rows(gradient), array(d_bias))
            return gradient, d_bias.to(gradient.dtype)
        d_sum = torch.empty(y.shape, dtype=y.dtype)
        linear_loops.relu_backward(rows(gradient), rows(y), rows_of(d_sum), array(d_bias))
        return d_sum, d_bias.to(y.dtype)

    def softmax_gradient(
        self, logits: Tensor, labels: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """Turn logits into softmax - (1 - smoothing) * onehot, in place.

        `logits` is [tokens, vocabulary], and `labels` is [tokens, 1]. Returns each label's logit
        and log-probability, both in fp32, [tokens, 1].
        """
        right, log_p = torch.empty(2, len(logits)).unbind()
        one = array(labels[:, 0].contiguous())
        cross_entropy_loops.gradient_of_logits(
            array(logits), one, smoothing, array(right), array(log_p)
        )
        return right[:, None], log_p[:, None]

    def pair_gradient(
        self, first: Tensor, second: Tensor, labels: Tensor, smoothing: float, weight: float
    ) -> PairLosses:
        """Turn the logits of two passes (R-Drop) into their gradients, in place.

        The gradients and the result are those of `consistency.pair_gradient`.
        """
        found = PairLosses(*torch.empty(3, len(first), 1).unbind())
        one = array(labels[:, 0].contiguous())
        outputs = (array(numbers[:, 0]) for numbers in found)
        cross_entropy_loops.gradients_of_pairs(
            array(first), array(second), one, smoothing, weight, *outputs
        )
        return found

    def most_likely(
        self, live: Tensor, logits: Tensor, never: tuple[int, ...], count: int
    ) -> Ranking:
        """The `count` most likely continuations of each sentence, by one compiled loop."""
        parents, tokens = torch.empty(2, len(live), count, dtype=torch.int64).unbind()
        found = Ranking(parents, tokens, torch.empty(len(live), count))
        without = torch.tensor(never, dtype=torch.int64)
        search_loops.rank_continuations(
            *map(array, (live.contiguous(), logits.contiguous(), without, *found))
        )
        return found

    def choose(
        self,
        candidates: Hypotheses,
        finished: Hypotheses,
        max_lengths: Tensor,
        length: Tensor,
        rules: Choosing,
    ) -> Chosen:
        """Choose the live and the finished hypotheses of all sentences, in one compiled loop."""
        like, places = candidates.tokens, (len(max_lengths), rules.beam)

        def empty() -> Hypotheses:
            rows, *numbers = torch.empty(places, dtype=torch.int64), *torch.empty(2, *places)
            return Hypotheses(like.new_empty(*places, like.shape[-1]), rows, *numbers)

        live, found, going = empty(), empty(), torch.empty_like(max_lengths, dtype=torch.bool)
        ends = int(length), rules.eos, rules.finish_by_beam
        search_loops.choose_hypotheses(
            arrays(candidates), arrays(finished), array(max_lengths), *ends,
            array(rules.penalty), arrays(live), arrays(found), array(going),
        )  # fmt: skip
        return Chosen(live, found, going)

    def round_rows(self, x: Tensor, factors: Tensor | None = None) -> Rounded:
        """x times the factors of its columns, rounded to signed 8 bits with a scale for each row.

        If `factors` is None, columns are not multiplied.
        """
        columns = x.shape[-1]
        integers = torch.empty(x.numel() // columns, columns, dtype=torch.int8)
        scale = torch.empty(len(integers))
        factors = torch.ones(columns) if factors is None else factors
        int8_loops.round_signed(rows(x), array(factors), array(integers), array(scale))
        return Rounded(integers, scale)

    def scale_products(
        self,
        y: Tensor,
        scale: Tensor,
        factors: Tensor | None,
        bias: Tensor | None,
        relu: bool,
        dtype: torch.dtype,
    ) -> Tensor:
        """Multiply row i of y by scale[i], and column j by factors[j]; add bias; ReLU if `relu`.

        The result has the dtype `dtype`. If `factors` or `bias` is None, it is left out.
        """
        out = torch.empty(y.shape, dtype=dtype)
        factors = torch.ones(y.shape[1]) if factors is None else factors
        bias = torch.zeros(y.shape[1]) if bias is None else bias.float()
        int8_loops.scale_sums(
            array(y), array(scale), array(factors), array(bias), relu, rows_of(out)
        )
        return out

    def round_unsigned(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x rounded to unsigned 8 bits, and the scale of each row."""
        rounded, scale = x.new_empty(x.shape, dtype=torch.uint8), x.new_empty(*x.shape[:-1], 1)
        int8_loops.round_unsigned_rows(rows(x), rows_of(rounded), array(scale.view(-1)))
        return rounded, scale

    def scale_rows(self, y: Tensor, scale: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
        """y * scale + bias, in place, with a scale for each row; then ReLU if `relu`."""
        if bias is None:
            return super().scale_rows(y, scale, bias, relu)
        int8_loops.scale_in_place(rows_of(y), array(scale.view(-1)), array(bias), relu)
        return y


class OneCore(Loops):
    """Training by loops, in a thread that uses one core."""

    def add_norm(self, x: Tensor, y: Tensor, norm: nn.LayerNorm, dropout: float = 0.0) -> Tensor:
        """Add & Norm in one pass."""
        out: Tensor = _LoopAddNorm.apply(self, x, y, norm.weight, norm.bias, norm.eps, dropout)
        return out

    def adam(self, learned: Learned, constants: Adam, rate: float, tokens: int | Tensor) -> None:
        """Adam in one pass over the weights; each core of this process updates a part of them.

        If gradients are in fp32, PyTorch's Adam is used.
        """
        master, weights, gradient, (updates, mean, variance) = learned
        if gradient.dtype != torch.bfloat16:
            super().adam(learned, constants, rate, tokens)
            return
        updates += 1
        beta1, beta2, epsilon = constants
        step = int(updates)
        size, root = rate / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
        numbers = 1 / int(tokens), beta1, beta2, size, root, epsilon
        cores = torch.get_num_threads()
        tensors = master, weights, gradient, mean, variance
        parts = zip(*(tensor.chunk(cores) for tensor in tensors), strict=True)

        def update(part: tuple[Tensor, ...]) -> None:
            master, weights, gradient, mean, variance = map(array, part)
            adam_loops.adam(master, weights, gradient, mean, variance, *numbers)

        list(side_by_side(update, list(parts), cores))


class OneCoreInference(Loops, Inference):
    """Inference by loops, in a thread that uses one core."""

    def add_norm(self, x: Tensor, y: Tensor, norm: nn.LayerNorm, dropout: float = 0.0) -> Tensor:
        """Add & Norm in one pass, unless there is dropout."""
        if dropout:
            return super().add_norm(x, y, norm, dropout)
        out = torch.empty(x.shape, dtype=x.dtype)
        weight, bias = array(norm.weight), array(norm.bias)
        residual_loops.add_norm(rows(x), rows(y), weight, bias, norm.eps, rows_of(out))
        return out


class _LoopAddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        by: OneCore,
        x: Tensor,
        y: Tensor,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        dropout: float,
    ) -> Tensor:
        total, out = (torch.empty(x.shape, dtype=x.dtype) for _ in range(2))
        mean, factor = torch.empty(2, x.numel() // x.shape[-1]).unbind()
        # The mask is not stored: the backward pass draws it again from the seed.
        ctx.masks = seed, drops, scale = (
            draw_seed(by.generator) if dropout else 0,
            threshold(dropout),
            1 / (1 - dropout),
        )
        residual_loops.dropped_add_norm(
            rows(x), rows(y), array(weight), array(bias), eps, seed, drops, scale,
            rows_of(total), rows_of(out), array(mean), array(factor),
        )  # fmt: skip
        ctx.save_for_backward(total, mean, factor, weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        total, mean, factor, weight = ctx.saved_tensors
        d_x, d_y = (torch.empty(total.shape, dtype=total.dtype) for _ in range(2))
        d_weight, d_bias = torch.zeros(2, len(weight)).unbind()
        seed, drops, scale = ctx.masks
        residual_loops.dropped_add_norm_backward(
            rows(gradient), rows(total), array(mean), array(factor), array(weight),
            seed, drops, scale, rows_of(d_x), rows_of(d_y), array(d_weight), array(d_bias),
        )  # fmt: skip
        return None, d_x, d_y, d_weight.to(weight.dtype), d_bias.to(weight.dtype), None, None
