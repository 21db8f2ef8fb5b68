"""Restricted self-attention in blocks against the masked definition, in training and decoding."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from families.modelling import VOCABULARY, rows
from regard.arithmetic.choose import for_decoding
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.plain import PLAIN
from regard.arithmetic.products import Products
from regard.attention import MultiHeadAttention
from regard.cost import flop
from regard.data.rows import Rows
from regard.encoder_decoder import EncoderDecoder
from regard.neighbourhood import neighbourhood_mask, restricted
from regard.recipe import ModelRecipe
from regard.transformer import Transformer
from regard.view.recording import record_attention


def attention(reach: int) -> Any:
    torch.manual_seed(1)
    module = restricted(MultiHeadAttention)(12, 3, 5, 4)
    module.reach = reach
    module.by = PLAIN
    return module


def by_definition(segments: Tensor, reach: int, causal: bool) -> Tensor:
    rows, length = segments.shape
    allowed = torch.zeros(rows, 1, length, length, dtype=torch.bool)
    for row in range(rows):
        for i in range(length):
            for j in range(length):
                near = abs(i - j) <= reach and not (causal and j > i)
                allowed[row, 0, i, j] = near and segments[row, i] == segments[row, j]
    return allowed


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 5),
    st.integers(1, 41),
    st.booleans(),
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
    st.sampled_from([PLAIN, Cpu(Products())]),
)
def test_blocks_attend_as_the_mask_defines(
    reach: int, length: int, causal: bool, lengths: list[int], by: Any
) -> None:
    """Values and gradients; rows hold several sentences, and padding."""
    module = attention(reach)
    module.by = by
    numbers = [i for i, n in enumerate(lengths, 1) for _ in range(n)]
    segments = torch.tensor([(numbers + [0] * length)[:length], [1] * length])
    x = torch.randn(2, length, 12, requires_grad=True)
    blocks = neighbourhood_mask(by, segments, reach, causal=causal)
    whole = by.mask(by_definition(segments, reach, causal))
    upstream, found = torch.randn(2, length, 12), []
    for mask in (blocks, whole):
        x.grad = None
        module.zero_grad()
        y = module(x, x, mask)
        y.backward(upstream)
        found.append((y, x.grad, *(p.grad for p in module.parameters() if p.grad is not None)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_memory_grows_with_the_length_and_not_with_its_square() -> None:
    """No tensor of the forward pass has as many numbers as a hundredth of all pairs."""
    length, reach, sizes = 8192, 128, []
    module = attention(reach)

    class Noting(Cpu):
        def attend(self, query: Tensor, key: Tensor, *rest: Any) -> Tensor:
            sizes.append(query[..., 0].numel() * key.shape[2])
            return super().attend(query, key, *rest)

    module.by = Noting(Products())
    x = torch.randn(1, length, 12, requires_grad=True)
    mask = neighbourhood_mask(
        module.by, torch.ones(1, length, dtype=torch.long), reach, causal=True
    )
    module(x, x, mask).sum().backward()
    assert mask.allowed.numel() == 2 * reach * length
    assert sizes == [3 * 2 * reach * length]
    assert x.grad is not None


def sizes(**changes: Any) -> ModelRecipe:
    small = {"layers": 2, "d_model": 12, "d_ff": 17, "heads": 3, "dropout": 0.0, "neighbourhood": 8}
    return ModelRecipe(**(small | changes))


def model_of(**changes: Any) -> Transformer:
    torch.manual_seed(1)
    model = Transformer(sizes(**changes), VOCABULARY)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.eval()


@pytest.mark.parametrize("changes", [{}, {"score": "dot"}, {"score": "additive"}, {"norm": "pre"}])
@pytest.mark.parametrize("beams", [1, 3])
def test_steps_compute_the_forward_pass_and_forget_what_is_far(
    changes: dict[str, Any], beams: int
) -> None:
    model, steps = model_of(**changes), 40
    source, target = rows([30, 7], 1), rows([steps] * 2 * beams, 2)
    each = Rows(*(x.repeat_interleave(beams, 0) for x in source))
    with torch.no_grad():
        whole = model(each, target)
        state = model.start(source).select(torch.arange(2)[:, None].expand(-1, beams))
        for i in range(steps):
            logits, state = model.step(target.ids[:, i], state)
            torch.testing.assert_close(logits, whole[:, i], rtol=1e-4, atol=1e-4)
            state = state.select(torch.arange(2 * beams).view(2, beams))
    assert state.ancestry.shape[2] <= beams * (4 + 1 + 16)


def test_it_is_another_model_only_beyond_the_neighbourhood() -> None:
    near, far = model_of(), model_of(neighbourhood=0)
    short, long = rows([5], 1), rows([6], 1)
    torch.testing.assert_close(near(short, short), far(short, short))
    assert not torch.allclose(near(long, long), far(long, long))
    assert near.parameter_count == far.parameter_count


def test_recorded_weights_are_those_of_whole_rows() -> None:
    model, source, target = model_of(), rows([30], 1), rows([26], 2)
    expected = model(source, target)
    with record_attention(model) as recording:
        torch.testing.assert_close(model(source, target), expected, rtol=1e-4, atol=1e-4)
    weights = recording["decoder"][0][0, 0]
    assert weights.shape == (26, 26)
    seen = by_definition(torch.ones(1, 26), 4, causal=True)[0, 0]
    assert torch.equal(weights > 0, seen)
    assert not model.whole_rows


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_decoding_lays_out_its_weights(precision: str) -> None:
    model, source, target = model_of(), rows([30, 8], 1), rows([28, 28], 2)
    with torch.no_grad():
        before = model(source, target)
        by = for_decoding(model, torch.device("cpu"), precision, exact=False)
        model.compute_by(by)
        error = (model(source, target) - before).abs().max() / before.abs().max()
    assert error < (1e-4 if precision == "fp32" else 0.2)


def test_exact_decoding_is_one_by_one() -> None:
    by = for_decoding(model_of(), torch.device("cpu"), "fp32", exact=True)
    assert not by.batches_agree(4, [1])


def test_operations_are_those_that_torch_counts() -> None:
    recipe, source, target = sizes(d_model=48, neighbourhood=32), 96, 80  # whole blocks
    model = Transformer(recipe, VOCABULARY)
    with FlopCounterMode(display=False) as counter:
        model(rows([source], 1), rows([target], 2)).sum().backward()
    counted = sum(flop(recipe, VOCABULARY, [source], [target]))
    assert counter.get_total_flops() == counted


def test_a_family_without_self_attention_has_no_neighbourhood() -> None:
    with pytest.raises(ValueError, match="neighbourhood = 8 is for the transformer"):
        sizes(family="convolutional")
    assert not EncoderDecoder.whole_rows
