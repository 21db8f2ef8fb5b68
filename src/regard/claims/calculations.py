"""Calculations for claims: positions, convolutions, dot products, gradients, costs.

They need no training. Each calculation has a public function, which takes a seed and returns
numbers by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import process_time

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from regard.arithmetic.plain import PLAIN
from regard.attention import attention
from regard.claims.recipes import WIDTHS
from regard.cost import flop
from regard.layers import FeedForward, sinusoids
from regard.paper import BASE, parameters
from regard.parts.kept import Measured
from regard.transformer import Transformer
from regard.variants import additive_scores

POSITIONS = 1024
MOST_APART = 512
"""The largest k for which PE(pos + k) is computed from PE(pos)."""
HEADS = (1, 2, 4, 8, 16, 32)
_PAIRS = 100_000
_KEYS, _QUERIES = 32, 4096
_ROWS, _LENGTH = 8, 64


def positions(seed: int) -> Measured:
    """Compare PE(pos + k) with R_k PE(pos), for random k (§3.5).

    R_k rotates each pair (sine, cosine) by k times the frequency of the pair, and is the same for
    every pos (see `rotation`). `error` is the largest difference. For comparison, a linear map is
    fitted by least squares to a random table: the map predicts each row from the row before.
    `random_error` is the largest error of this map.
    """
    generator = torch.Generator().manual_seed(seed)
    d_model = BASE.model.d_model
    table = sinusoids(POSITIONS + MOST_APART, d_model).double()
    offsets = torch.randint(1, MOST_APART + 1, (64,), generator=generator).tolist()
    errors = [
        (table[:POSITIONS] @ rotation(k, d_model).T - table[k : POSITIONS + k]).abs().max()
        for k in offsets
    ]
    noise = torch.randn(POSITIONS + 1, d_model, generator=generator, dtype=torch.float64)
    best = torch.linalg.lstsq(noise[:-1], noise[1:]).solution
    return {
        "error": float(max(errors)),
        "random_error": float((noise[:-1] @ best - noise[1:]).abs().max()),
    }


def rotation(k: int, d_model: int) -> Float[Tensor, "d_model d_model"]:
    """The matrix R_k in fp64, for which PE(pos + k) = R_k PE(pos) (§3.5).

    R_k rotates each pair (sine, cosine) of an angle a by the angle b = k / 10000^(2i / d_model):
    sin(a + b) = cos(b) sin(a) + sin(b) cos(a), and cos(a + b) = cos(b) cos(a) - sin(b) sin(a).
    """
    blocks = []
    for i in range(0, d_model, 2):
        angle = k / 10_000 ** (i / d_model)
        sine, cosine = math.sin(angle), math.cos(angle)
        blocks.append(torch.tensor([[cosine, sine], [-sine, cosine]], dtype=torch.float64))
    return torch.block_diag(*blocks)


def convolutions(seed: int) -> Measured:
    """Compute the feed-forward network as two convolutions with kernels of size 1 (§3.3).

    The convolutions have the network's weights, and there is a ReLU between them. `error` is the
    largest difference from FFN(x), in fp64, for random x.
    """
    torch.manual_seed(seed)
    d_model, d_ff = BASE.model.d_model, BASE.model.d_ff
    network = FeedForward(d_model, d_ff).double()
    network.by = PLAIN
    x = torch.randn(4, 37, d_model, dtype=torch.float64)
    with torch.no_grad():
        inner = F.conv1d(x.transpose(1, 2), network.W_1.weight[:, :, None], network.W_1.bias)
        outer = F.conv1d(inner.relu(), network.W_2.weight[:, :, None], network.W_2.bias)
        error = (network(x) - outer.transpose(1, 2)).abs().max()
    return {"error": float(error)}


_DRAWN: dict[str, Callable[[torch.Generator, int], Tensor]] = {
    "normal": lambda generator, d: torch.randn(_PAIRS, d, generator=generator),
    "uniform": lambda generator, d: (torch.rand(_PAIRS, d, generator=generator) - 0.5) * 12**0.5,
    "signs": lambda generator, d: torch.randint(0, 2, (_PAIRS, d), generator=generator) * 2.0 - 1,
}
"""For each distribution, a function that draws random vectors with d components.

Components are independent, with mean 0 and variance 1. The result is [_PAIRS, d].
"""
DISTRIBUTIONS = tuple(_DRAWN)


def variances(seed: int) -> Measured:
    """Variance / d_k and mean / sqrt(d_k) of q · k (§3.2.1), by distribution and d_k.

    For example, for vectors of 64 normally distributed components, `normal_64` is variance / d_k,
    and `normal_mean_64` is mean / sqrt(d_k). The numbers `apart` and `joined` are variance / d_k in
    two untrained base models of one layer, for states drawn from a normal distribution. In `apart`,
    W^Q and W^K are initialised by the Glorot limit of each matrix; in `joined`, by the limit of one
    matrix that joins W^Q, W^K and W^V.
    """
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, draw in _DRAWN.items():
        for d_k in WIDTHS:
            products = (draw(generator, d_k) * draw(generator, d_k)).sum(1)
            found[f"{name}_{d_k}"] = float(products.var()) / d_k
            found[f"{name}_mean_{d_k}"] = float(products.mean()) / d_k**0.5
    for initial in ("apart", "joined"):
        torch.manual_seed(seed)
        heads = Transformer(BASE.but(layers=1, initial=initial).model, 3)
        with torch.no_grad():
            states = torch.randn(1, 1024, BASE.model.d_model)
            query, key, _ = heads.encoder[0].self_attention.project(states)
            found[initial] = float((query @ key.transpose(2, 3)).var()) / BASE.model.d_k
    return found


def softmax_gradients(seed: int) -> Measured:
    """The size of the softmax's gradient with and without scaling (§3.2.1), by d_k.

    For each random query, p is the vector of its attention weights for 32 random keys. The size of
    the gradient is the Frobenius norm of diag(p) - p p^T, averaged over queries. For d_k = 64,
    `scaled_64` is this size with scaling, and `dot_64` without. `scaled_most_64` and `dot_most_64`
    are the largest weight in p, averaged over queries.
    """
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for d_k in WIDTHS:
        query = torch.randn(_QUERIES, 1, d_k, generator=generator)
        keys = torch.randn(_QUERIES, _KEYS, d_k, generator=generator)
        products = (query * keys).sum(-1)
        for name, scores in (("scaled", products / d_k**0.5), ("dot", products)):
            p = scores.softmax(-1)
            jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
            found[f"{name}_{d_k}"] = float(jacobian.flatten(1).norm(dim=1).mean())
            found[f"{name}_most_{d_k}"] = float(p.amax(-1).mean())
    return found


def head_costs(seed: int) -> Measured:
    """Parameters and operations of one-layer base models with h heads (§3.2.2), by h.

    Heads are d_model / h wide. `parameters_h` is the number of parameters. `flop_h` is the number
    of operations of one training step on one pair, as `cost.flop` computes it. `counted_h` is the
    number of operations that PyTorch counts in the forward pass of one self-attention with its
    projections. Each sequence has 64 positions.
    """
    torch.manual_seed(seed)
    found = {}
    for heads in HEADS:
        model = BASE.but(heads=heads, layers=1).model
        found[f"parameters_{heads}"] = float(parameters(model, 37_000))
        found[f"flop_{heads}"] = float(sum(flop(model, 37_000, [_LENGTH], [_LENGTH])))
        module = Transformer(model, 3).encoder[0].self_attention
        x = torch.randn(1, _LENGTH, model.d_model)
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            module(x, x, PLAIN.mask(torch.ones(1, 1, _LENGTH, _LENGTH, dtype=torch.bool)))
        found[f"counted_{heads}"] = float(counter.get_total_flops())
    return found


def score_costs(seed: int) -> Measured:
    """Processor time and memory of dot-product and additive attention (§3.2.1), by d_k.

    For example, `dot_ms_64` and `dot_MB_64` are for dot products with d_k = 64. One head computes
    the forward and the backward pass for 8 sentences of 64 positions. This is done five times; the
    shortest time is taken, in ms. The memory, in MB, is the size of the tensors that the forward
    pass keeps for the backward pass.
    """
    generator = torch.Generator().manual_seed(seed)
    mask = torch.ones(1, 1, _LENGTH, _LENGTH, dtype=torch.bool)

    def additive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return additive_scores(q, k, torch.ones(1, q.shape[-1])).softmax(-1) @ v

    def dot(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, mask)[0]

    found = {}
    for d_k in WIDTHS:
        shape = (3, _ROWS, 1, _LENGTH, d_k)
        qkv = torch.randn(shape, generator=generator).requires_grad_()
        for name, attend in (("dot", dot), ("additive", additive)):
            milliseconds, megabytes = _cost(attend, qkv)
            found[f"{name}_ms_{d_k}"], found[f"{name}_MB_{d_k}"] = milliseconds, megabytes
    return found


def _cost(attend: Callable[[Tensor, Tensor, Tensor], Tensor], qkv: Tensor) -> tuple[float, float]:
    """Return milliseconds and megabytes of `attend`, as `score_costs` describes them.

    `qkv` is [3, rows, heads, length, d_k]: queries, keys and values.
    """
    kept = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    best = math.inf
    for _ in range(5):
        kept.clear()
        began = process_time()
        with saved_tensors_hooks(keep, lambda x: x):
            output = attend(*qkv.unbind())
        output.sum().backward()
        best = min(best, process_time() - began)
    return 1000 * best, sum(kept.values()) / 1e6
