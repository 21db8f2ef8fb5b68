"""Loops that compute all layers of the encoder or of the decoder for a few positions (§3.1).

With few positions, most of a step's time passes between PyTorch's operations, so one call of a loop
computes all layers. The array `weights` has all matrices W, one after another, each arranged by
`products.in_blocks` or `integers.pack`. The array `numbers` has all scales, biases and parameters
of LayerNorms. The elements of both arrays are in the order in which the layers use them;
`regard.arithmetic.few_rows` makes the arrays. Weights are in fp32, in bf16, or in integers of 8
bits. Each output of a matrix is multiplied by a scale, which is 1 unless the weights are integers.
Activations are in fp32.
"""

import numpy as np
from numpy import float32 as f32

from regard.arithmetic.loops.numbers import (
    Numbers,
    exp,
    largest,
    loop_for,
    loop_for_weights,
    read,
    within,
)
from regard.arithmetic.loops.products import apply_layer

RELU, SWISH = 0, 1
"""The numbers by which loops distinguish the activation functions."""


@within
def _add_norm(x: Numbers, y: Numbers, weight: Numbers, bias: Numbers, eps: float) -> None:
    """Turn x into LayerNorm(x + y)."""
    columns = f32(x.shape[1])
    for r in range(len(x)):
        row, other = x[r], y[r]
        mean, variance = f32(0), f32(0)
        for j in range(len(row)):
            row[j] += other[j]
            mean += row[j]
        mean /= columns
        for j in range(len(row)):
            row[j] -= mean
            variance += row[j] * row[j]
        factor = f32(1) / np.sqrt(variance / columns + eps)
        for j in range(len(row)):
            row[j] = row[j] * factor * weight[j] + bias[j]


@within
def _activate(x: Numbers, activation: int) -> None:
    """Turn x into max(0, x), or with SWISH into x / (1 + e^-x)."""
    for r in range(len(x)):
        row = x[r]
        if activation == RELU:
            for j in range(len(row)):
                row[j] = f32(0) if row[j] < f32(0) else row[j]  # NaN stays
        else:
            for j in range(len(row)):
                power = exp(-abs(row[j]))
                row[j] *= (power if row[j] < f32(0) else f32(1)) / (f32(1) + power)


@within
def _attend(
    query: Numbers,
    keys: Numbers,
    values: Numbers,
    places: tuple[int, int],
    slots: Numbers,
    heads: int,
    out: Numbers,
) -> None:
    """Write the attention (equation 1) of one query, in all its heads, to `out`, [heads * d_v].

    The query, [heads * d_k], attends to the rows `slots` of `keys` and `values`. In each of these
    rows, the key begins at column places[0] of `keys`, and the value at column places[1] of
    `values`; `keys` and `values` may be the same array.
    """
    d_k, d_v = len(query) // heads, len(out) // heads
    factor = f32(1) / np.sqrt(f32(d_k))
    weights = np.empty(len(slots), np.float32)
    for head in range(heads):
        of_query, first = query[head * d_k : (head + 1) * d_k], places[0] + head * d_k
        for i in range(len(slots)):
            key, score = keys[slots[i], first : first + d_k], f32(0)
            for j in range(d_k):
                score += of_query[j] * key[j]
            weights[i] = score * factor
        highest, total = largest(weights), f32(0)
        for i in range(len(slots)):
            weights[i] = exp(weights[i] - highest)
            total += weights[i]
        summed, first = out[head * d_v : (head + 1) * d_v], places[1] + head * d_v
        summed[:] = f32(0)
        for i in range(len(slots)):
            weight, value = weights[i] / total, values[slots[i], first : first + d_v]
            for j in range(d_v):
                summed[j] += weight * value[j]


@within
def _copy(row: Numbers, out: Numbers) -> None:
    """Copy a row to `out`, number by number.

    Numba takes some ten seconds to compile `out[:] = row`, which includes code that raises errors.
    """
    for j in range(len(row)):
        out[j] = row[j]


@within
def _layer(
    x: Numbers, outputs: int, weights: Numbers, numbers: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """Compute (x W^T) * scale + b.

    W is the first matrix in `weights`. `numbers` begins with the scale and b, both [outputs].
    Returns the result, [rows, outputs], and the rest of `weights` and of `numbers`, for the next
    layer.
    """
    y = np.empty((len(x), outputs), np.float32)
    size = apply_layer(x, weights, numbers, y)
    return y, weights[size:], numbers[2 * outputs :]


@within
def _sublayer(
    x: Numbers, y: Numbers, weights: Numbers, numbers: Numbers, eps: float
) -> tuple[Numbers, Numbers]:
    """Turn x into LayerNorm(x + (y W^T) * scale + b), in place.

    `weights` begins with W. `numbers` begins with the scale, b, and the weight and bias of
    LayerNorm, each [columns of x]. Returns the rest of `weights` and of `numbers`, for the next
    layer.
    """
    d = x.shape[1]
    y, weights, numbers = _layer(y, d, weights, numbers)
    _add_norm(x, y, numbers[:d], numbers[d : 2 * d], eps)
    return weights, numbers[2 * d :]


@loop_for_weights(
    "void(float32[:, ::1], {w}[::1], float32[::1], int64[::1], float32, int64[:, ::1])"
)
def encode_layers(
    x: Numbers, weights: Numbers, numbers: Numbers, sizes: Numbers, eps: float, sources: Numbers
) -> None:
    """Turn x, the embedded sources of all sentences, into the output of the encoder, in place.

    The positions of a sentence follow those of the sentence before. The first position of sentence
    s is sources[s, 0], and its queries attend to the positions from sources[s, 0] to
    sources[s, 1] - 1. `sizes` holds the number of layers, the number of heads, d_k, d_v, d_ff and
    the activation (`RELU` or `SWISH`).
    """
    layers, heads, d_k, d_v, d_ff, activation = sizes
    of_keys, of_values = heads * d_k, 2 * heads * d_k
    places = (of_keys, of_values)
    for _ in range(layers):
        y, weights, numbers = _layer(x, of_values + heads * d_v, weights, numbers)
        attention = np.empty((len(x), heads * d_v), np.float32)
        for s in range(len(sources)):
            slots = np.arange(sources[s, 0], sources[s, 1])
            end = sources[s + 1, 0] if s + 1 < len(sources) else len(x)
            for i in range(sources[s, 0], end):
                _attend(y[i, :of_keys], y, y, places, slots, heads, attention[i])
        weights, numbers = _sublayer(x, attention, weights, numbers, eps)
        y, weights, numbers = _layer(x, d_ff, weights, numbers)
        _activate(y, activation)
        weights, numbers = _sublayer(x, y, weights, numbers, eps)


@loop_for_weights("void(float32[:, ::1], {w}[::1], float32[::1], float32[:, :, ::1])")
def project(x: Numbers, weights: Numbers, numbers: Numbers, out: Numbers) -> None:
    """Write (x W^T) * scale + b to out[i], for the i-th W, scale and b.

    All matrices have the same number of outputs.
    """
    for i in range(len(out)):
        size = apply_layer(x, weights, numbers, out[i])
        weights, numbers = weights[size:], numbers[2 * out.shape[2] :]


@loop_for("void(int64[::1], {n}[:, ::1], float32, float32[::1], float32[:, ::1])")
def embed(
    tokens: Numbers, embedding: Numbers, scale: float, position: Numbers, out: Numbers
) -> None:
    """Write the embedding of each token times `scale`, plus `position`, to `out` (§3.4, §3.5).

    `position` is the positional encoding, [d_model]; all tokens are at the same position.
    """
    for row in range(len(tokens)):
        of_token, of_row = embedding[tokens[row]], out[row]
        for j in range(len(of_row)):
            of_row[j] = read(of_token[j]) * scale + position[j]


@loop_for_weights(
    "void(float32[:, ::1], {w}[::1], float32[::1], int64[::1], float32, float32[:, :, ::1], "
    "int64[:, ::1], float32[:, :, ::1], int64[:, ::1])"
)
def decode_layers(
    y: Numbers,
    weights: Numbers,
    numbers: Numbers,
    sizes: Numbers,
    eps: float,
    past: Numbers,
    ancestry: Numbers,
    memory: Numbers,
    sources: Numbers,
) -> None:
    """Turn y, the embedded last token of each row, into the output of the decoder, in place.

    `past` and `memory` hold a key and a value for each layer and slot: `past` for decoded tokens,
    `memory` for the encoder's output. The key and the value of a row's last token are written to
    slot ancestry[row, -1] of `past`. The row attends to all slots ancestry[row] of `past`, and to
    the slots of `memory` from sources[row, 0] to sources[row, 1] - 1.
    `sizes` has the same entries as in `encode_layers`.
    """
    layers, heads, d_k, d_v, d_ff, activation = sizes
    of_keys, both = heads * d_k, heads * (d_k + d_v)
    attention = np.empty((len(y), heads * d_v), np.float32)
    for layer in range(layers):
        own, weights, numbers = _layer(y, of_keys + both, weights, numbers)
        for row in range(len(y)):
            _copy(own[row, of_keys:], past[layer, ancestry[row, -1]])
        for row in range(len(y)):
            query, slots = own[row, :of_keys], ancestry[row]
            _attend(query, past[layer], past[layer], (0, of_keys), slots, heads, attention[row])
        weights, numbers = _sublayer(y, attention, weights, numbers, eps)
        own, weights, numbers = _layer(y, of_keys, weights, numbers)
        for row in range(len(y)):
            slots, of_layer = np.arange(sources[row, 0], sources[row, 1]), memory[layer]
            _attend(own[row], of_layer, of_layer, (0, of_keys), slots, heads, attention[row])
        weights, numbers = _sublayer(y, attention, weights, numbers, eps)
        own, weights, numbers = _layer(y, d_ff, weights, numbers)
        _activate(own, activation)
        weights, numbers = _sublayer(y, own, weights, numbers, eps)
