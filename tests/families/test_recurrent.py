"""LSTM layers against torch.nn.LSTM, and the shape of the recurrent model."""

import pytest
import torch
from torch import nn

from families.modelling import model_of, rows, sizes
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.plain import PLAIN
from regard.arithmetic.products import Products
from regard.families.recurrent import BothDirections, Lstm, RecurrentModel
from regard.families.stepping import reversal
from regard.recurrence import lstm_cell


def torchs(layer: Lstm, inputs: int, width: int) -> nn.LSTM:
    theirs = nn.LSTM(inputs, width, batch_first=True)
    theirs.load_state_dict(
        {
            "weight_ih_l0": layer.W_x.weight,
            "weight_hh_l0": layer.W_h.weight,
            "bias_ih_l0": layer.W_x.bias,
            "bias_hh_l0": layer.W_h.bias,
        }
    )
    return theirs


def test_a_cell_by_hand() -> None:
    gates, cell = torch.tensor([0.0, 1.0, -1.0, 2.0]), torch.tensor([0.5])
    sigmoid = lambda x: 1 / (1 + torch.tensor(-x).exp())  # noqa: E731
    after = sigmoid(1.0) * 0.5 + sigmoid(0.0) * torch.tensor(-1.0).tanh()
    h, found = lstm_cell(gates, cell)
    torch.testing.assert_close(found, after[None])
    torch.testing.assert_close(h, (sigmoid(2.0) * after.tanh())[None])


@pytest.mark.parametrize("by", [PLAIN, Cpu(Products())], ids=["definition", "fused"])
def test_a_layer_is_torchs(by: object) -> None:
    torch.manual_seed(1)
    layer, x = Lstm(5, 7), torch.randn(3, 11, 5)
    layer.by = by  # type: ignore[assignment]
    torch.testing.assert_close(layer(x), torchs(layer, 5, 7)(x)[0])


def test_both_directions_are_torchs_for_packed_sequences() -> None:
    torch.manual_seed(1)
    both, lengths = BothDirections(6), [9, 4, 1]
    for layer in (both.forwards, both.backwards):
        layer.by = PLAIN
    theirs = nn.LSTM(6, 6, batch_first=True, bidirectional=True)
    for layer, end in ((both.forwards, ""), (both.backwards, "_reverse")):
        for name, tensor in torchs(layer, 6, 6).state_dict().items():
            theirs.state_dict()[name + end].copy_(tensor)
    x, real = torch.randn(3, 9, 6), torch.arange(9) < torch.tensor(lengths)[:, None]
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first=True)
    expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    torch.testing.assert_close(both(x, reversal(real))[real], expected[real])


def test_a_sentence_turned_around() -> None:
    real = torch.tensor([[True, True, True, False], [True, False, False, False]])
    assert reversal(real).tolist() == [[2, 1, 0, 3], [0, 1, 2, 3]]


def test_a_cell_forgets_little_at_first() -> None:
    model = RecurrentModel(sizes("recurrent"), 29)
    for layer in model.modules():
        if isinstance(layer, Lstm):
            gates = layer.W_x.bias.view(4, 12)
            assert gates[1].eq(1).all()
            assert not gates[[0, 2, 3]].any()
            assert 0.9 < layer.W_h.weight.abs().max() / (6 / 24) ** 0.5 <= 1


def test_it_attends_as_additive_attention_is_defined() -> None:
    model = model_of("recurrent")
    attention = model.attention
    source, target = rows([5], 1), rows([4], 2)
    memory = model.encode(source)
    y = model.decoder[0](model.embedding(target.ids, target.positions, 4))
    mask = PLAIN.mask(torch.ones(1, 1, 4, 5, dtype=torch.bool))
    found = attention(y, attention.keys(memory), memory, mask)[0]
    for position in range(4):
        asked = attention.W_q(y[0, position])
        scores = [(attention.w[0] * torch.tanh(asked + attention.W_k(m))).sum() for m in memory[0]]
        expected = torch.stack(scores).softmax(0) @ memory[0]
        torch.testing.assert_close(found[position], expected)
