"""Parts of claims that need no training: positions, convolutions, dot products, costs.

The function of a part takes a seed and returns named numbers.
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
    """`error` is the largest difference between PE(pos + k) and R_k PE(pos), for random k.

    R_k rotates each pair (sine, cosine) by k times the frequency of the pair, and is the same for
    every pos (see `rotation`). `random_error` is for comparison. A linear map, fitted by least
    squares, predicts each row of a random table from the row before; `random_error` is the largest
    error of this map.
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
    """R_k, with which PE(pos + k) = R_k PE(pos) (§3.5): a rotation of each pair (sine, cosine).

    sin(a + b) = cos(b) sin(a) + sin(b) cos(a), and cos(a + b) = cos(b) cos(a) - sin(b) sin(a).
    """
    blocks = []
    for i in range(0, d_model, 2):
        angle = k / 10_000 ** (i / d_model)
        sine, cosine = math.sin(angle), math.cos(angle)
        blocks.append(torch.tensor([[cosine, sine], [-sine, cosine]], dtype=torch.float64))
    return torch.block_diag(*blocks)


def convolutions(seed: int) -> Measured:
    """The largest difference (fp64) between FFN(x) and conv1d, ReLU, conv1d with kernels of 1."""
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
"""Functions that draw vectors, by distribution; components have mean 0 and variance 1."""
DISTRIBUTIONS = tuple(_DRAWN)


def variances(seed: int) -> Measured:
    """Variance / d_k and mean / sqrt(d_k) of q · k (§3.2.1), by distribution and d_k.

    The numbers `apart` and `joined` are variance / d_k in two untrained base models of one layer,
    for states drawn from a normal distribution. In `apart`, W^Q and W^K are initialised by the
    Glorot limit of each matrix; in `joined`, by the limit of one matrix that joins W^Q, W^K and
    W^V.
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
    """The size of the softmax's gradient with and without scaling, by d_k.

    The size is the Frobenius norm of diag(p) - p p^T, averaged over queries; p are the weights of
    32 keys. `most` is the largest weight of a query, averaged over queries.
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
    """Parameters and operations of one-layer base models, by their number of heads, h.

    Heads are d_model / h wide. `flop_h` is the number of operations of training on one pair, by
    formula. `counted_h` is the number that PyTorch counts in the forward pass of one self-attention
    with its projections. Each sequence has 64 positions.
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
    """Processor time and memory of dot-product attention and of additive attention, by d_k.

    The time, in ms, is the shortest of five forward and backward passes of 8 sentences of 64
    positions, in one head. The memory, in MB, is kept by the forward pass for the backward pass.
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
    """Milliseconds of processor time (least of five), and megabytes kept for the backward pass."""
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
