"""§3.2 by hand-worked values, and multi-head attention against torch.nn."""

import math

import pytest
import torch
from torch import Tensor, nn

from regard.arithmetic.attention import CpuMask
from regard.arithmetic.choose import can_pack
from regard.arithmetic.inference import Inference
from regard.arithmetic.layouts import LaidOut, PackedLinear
from regard.arithmetic.plain import PLAIN
from regard.attention import MultiHeadAttention, attention, causal_mask, segment_mask
from regard.equations import Mask


def plainly(d_model: int, heads: int, d_k: int, d_v: int) -> MultiHeadAttention:
    """Multi-head attention that computes by the definitions."""
    module = MultiHeadAttention(d_model, heads, d_k, d_v)
    module.by = PLAIN
    return module


def test_equation_one_by_hand() -> None:
    # d_k = 4, so scores are halved: q.k1 = 2 ln 3 -> ln 3, q.k2 = 0; softmax is (3/4, 1/4).
    query = torch.tensor([2 * math.log(3.0), 0.0, 0.0, 0.0]).view(1, 1, 1, 4)
    key = torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]]).view(1, 1, 2, 4)
    value = torch.tensor([[8.0], [4.0]]).view(1, 1, 2, 1)
    output, weights = attention(query, key, value, torch.ones(1, 1, 1, 2, dtype=torch.bool))
    torch.testing.assert_close(weights.flatten(), torch.tensor([0.75, 0.25]))
    torch.testing.assert_close(output.flatten(), torch.tensor([7.0]))


def test_masks_by_hand() -> None:
    mask = segment_mask(torch.tensor([[1, 2, 0]]), torch.tensor([[1, 1, 2, 0]]))
    expected = [
        [True, True, False, False],
        [False, False, True, False],
        [False, False, False, True],
    ]
    assert mask[0, 0].tolist() == expected
    assert causal_mask(2, torch.device("cpu")).tolist() == [[True, False], [True, True]]


def test_multi_head_attention_equals_torch() -> None:
    torch.manual_seed(1)
    heads, d_model, rows, queries, keys = 3, 15, 2, 5, 7
    ours = plainly(d_model, heads, d_model // heads, d_model // heads)
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.3)
    theirs = nn.MultiheadAttention(d_model, heads, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([m.weight for m in (ours.W_q, ours.W_k, ours.W_v)]))
        theirs.in_proj_bias.copy_(torch.cat([m.bias for m in (ours.W_q, ours.W_k, ours.W_v)]))
        theirs.out_proj.weight.copy_(ours.W_o.weight)
        theirs.out_proj.bias.copy_(ours.W_o.bias)
    x, memory = torch.randn(rows, queries, d_model), torch.randn(rows, keys, d_model)
    real = torch.tensor([[True] * keys, [True] * 4 + [False] * 3])
    expected, _ = theirs(x, memory, memory, key_padding_mask=~real)
    output = ours(x, memory, Mask(real[:, None, None, :].expand(-1, 1, queries, -1)))
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)


def test_d_k_and_d_v_are_free() -> None:
    module = plainly(d_model=11, heads=2, d_k=3, d_v=5)
    assert module.W_q.out_features == 6
    assert module.W_v.out_features == 10
    x = torch.randn(2, 3, 11)
    assert module(x, x, Mask(torch.ones(1, 1, 1, 3, dtype=torch.bool))).shape == x.shape


def test_a_query_that_may_attend_to_nothing_gets_nothing() -> None:
    query, key, value = torch.randn(1, 1, 2, 3), torch.randn(1, 1, 4, 3), torch.randn(1, 1, 4, 5)
    mask = torch.tensor([[True] * 4, [False] * 4]).view(1, 1, 2, 4)
    output, weights = attention(query, key, value, mask)
    assert weights[0, 0].sum(-1).tolist() == pytest.approx([1.0, 0.0])
    assert not output[0, 0, 1].any()


def test_weights_are_dropped_in_training_only() -> None:
    module, x = plainly(d_model=8, heads=2, d_k=4, d_v=4), torch.randn(2, 3, 8)
    mask = Mask(torch.ones(1, 1, 1, 3, dtype=torch.bool))
    whole = module(x, x, mask)
    module.dropout = 0.9
    assert not torch.equal(module(x, x, mask), whole)
    assert torch.equal(module.eval()(x, x, mask), whole)


def test_the_bias_of_the_keys_is_not_trained() -> None:
    module, x = plainly(d_model=8, heads=2, d_k=4, d_v=4), torch.randn(2, 3, 8)
    module(x, x, Mask(torch.ones(1, 1, 1, 3, dtype=torch.bool))).square().sum().backward()
    assert [name for name, p in module.named_parameters() if p.grad is None] == ["W_k.bias"]


@pytest.mark.skipif(not can_pack(torch.float32), reason="this build has no oneDNN")
def test_keys_and_values_are_attended_to_in_the_precision_in_which_they_are_kept() -> None:
    torch.manual_seed(1)
    own, crossing, embedding = plainly(16, 2, 8, 8), plainly(16, 2, 8, 8), nn.Embedding(5, 16)
    model = nn.ModuleList([own, crossing])
    model.attentions = lambda: {"cross": [crossing]}  # type: ignore[assignment]
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    allowed = [torch.ones(1, 1, 1, keys, dtype=torch.bool) for keys in (5, 7)]
    multiplied: list[torch.dtype] = []

    class Listening(Inference):
        def attention_weights(
            self, scores: Tensor, bias: Tensor, factor: float, dropout: float
        ) -> Tensor:
            multiplied.append(scores.dtype)
            return super().attention_weights(scores, bias, factor, dropout)

    with torch.no_grad():
        expected = own(x, x, Mask(allowed[0])), crossing(x, memory, Mask(allowed[1]))
        own.by = crossing.by = Listening(LaidOut(model, embedding, PackedLinear), torch.bfloat16)
        cache = own.by.cache(*crossing.keys_values(memory))
        found = own(x, x, CpuMask(allowed[0])), crossing(x, memory, CpuMask(allowed[1]))
    assert multiplied == [torch.bfloat16] * 2
    assert cache.keys.dtype == cache.values.dtype == torch.bfloat16
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, atol=2e-2, rtol=2e-2)
