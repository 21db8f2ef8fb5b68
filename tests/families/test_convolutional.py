"""The convolutional family by its definition, position by position."""

import torch
import torch.nn.functional as F
from torch import Tensor

from families.modelling import model_of, rows, sizes
from regard.families.convolutional import ConvolutionalModel

ROOT = 0.5**0.5


def convolved(layer: object, x: Tensor, before: int) -> Tensor:
    """GLU of a kernel of 4 over one sentence, by torch's convolution."""
    linear = layer.convolution.W  # type: ignore[attr-defined]
    weight = linear.weight.view(24, 4, 12).transpose(1, 2)
    y = F.conv1d(F.pad(x.t(), (before, 3 - before))[None], weight, linear.bias)[0].t()
    return y[:, :12] * y[:, 12:].sigmoid()


def test_it_computes_what_was_published() -> None:
    model = model_of("convolutional", layers=2, decoder_layers=2)
    source, target = rows([7], 1), rows([5], 2)
    embedded = model.embedding(source.ids, source.positions, 7)[0] * 0.1
    x = model.encoder_ends.W_in(embedded)
    for layer in model.encoder:
        x = (x + convolved(layer, x, 1)) * ROOT
    keys = model.encoder_ends.W_out(x)
    values = (keys + embedded) * ROOT
    asked = model.embedding(target.ids, target.positions, 5)[0] * 0.1
    y = model.decoder_ends.W_in(asked)
    for layer in model.decoder:
        h = convolved(layer, y, 3)
        query = (layer.W_q(h) + asked) * ROOT
        weights = (query @ keys.t()).softmax(-1)
        h = (h + layer.W_o(weights @ values * 7**0.5)) * ROOT
        y = (y + h) * ROOT
    expected = model.decoder_ends.W_out(y)
    found = model.decode(target, model.encode(source), source)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_at_first_states_keep_their_variance() -> None:
    torch.manual_seed(1)
    recipe = sizes("convolutional", layers=8, decoder_layers=8, d_model=256, kernel=3)
    model = ConvolutionalModel(recipe, 29)
    keys, values = model.encode(rows([40, 40], 1))
    embedded = 2**0.5 * values - keys
    assert 0.3 < keys.var() / embedded.var() < 3
