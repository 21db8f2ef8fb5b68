"""FlexAttention, of which a CPU computes the forward pass by PyTorch's definition of it."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.arithmetic.cuda import Cuda
from regard.arithmetic.flex import (
    LEAST_WIDTH,
    NARROW,
    SIDE,
    SMALL_TILES,
    FlexCuda,
    SegmentMask,
)
from regard.arithmetic.plain import PLAIN

HEADS = 2
BY = FlexCuda(learning=True)


def segments(rows: int, length: int, padding: int) -> Tensor:
    """Sentences of any lengths, then padding."""
    numbers = torch.randint(1, 9, (rows, length)).sort(1).values
    numbers[:, length - padding :] = 0
    return numbers


def query_key_value(queries: int, keys: int, width: int = LEAST_WIDTH) -> tuple[Tensor, ...]:
    widths = (queries, width), (keys, width), (keys, width + 1)
    return tuple(torch.randn(3, HEADS, *shape) for shape in widths)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(("queries", "keys"), [(7, 11), (SIDE, SIDE), (2 * SIDE + 1, SIDE + 9)])
@pytest.mark.parametrize("causal", [False, True])
def test_it_attends_as_the_definition_does(queries: int, keys: int, causal: bool) -> None:
    """Some queries have no keys: a segment of theirs is not among those of the keys."""
    torch.manual_seed(1)
    keys = queries if causal else keys
    mine = segments(3, queries, queries // 5)
    theirs = mine if causal else segments(3, keys, 0)
    masks = [by.mask_of_segments(mine, theirs, causal=causal) for by in (BY, PLAIN)]
    assert torch.equal(*(mask.allowed for mask in masks))
    given = query_key_value(queries, keys)
    with torch.no_grad():
        found, right = BY.attend(*given, masks[0]), PLAIN.attend(*given, masks[1])
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-6)
    nowhere = ~masks[1].allowed.any(-1)[:, 0]
    assert nowhere.any() == (not causal)
    assert not found.transpose(1, 2)[nowhere].any()


def test_blocks_of_other_sentences_are_skipped() -> None:
    long = torch.tensor([1, 2, 3]).repeat_interleave(SIDE)[None]
    mask = BY.mask_of_segments(long, long)
    assert isinstance(mask, SegmentMask)
    assert mask.blocks.to_dense()[0, 0].tolist() == torch.eye(3).tolist()
    one = torch.ones_like(long)
    causal = BY.mask_of_segments(one, one, causal=True)
    assert isinstance(causal, SegmentMask)
    assert causal.blocks.to_dense()[0, 0].tolist() == torch.ones(3, 3).tril().tolist()


@pytest.mark.parametrize("why", ["dropout", "narrow heads", "a mask of booleans"])
def test_what_it_cannot_do_is_left_to_the_other_kernels(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.arithmetic.flex.flex_attention", None)
    torch.manual_seed(1)
    mine = segments(3, 9, 2)
    given = query_key_value(9, 9, 5 if why == "narrow heads" else LEAST_WIDTH)
    mask = BY.mask_of_segments(mine, mine)
    if why == "a mask of booleans":
        mask = BY.mask(mask.allowed)
    dropout = 0.5 if why == "dropout" else 0.0
    found = []
    for by in (BY, Cuda(learning=True)):
        torch.manual_seed(2)
        found.append(by.attend(*given, mask, dropout))
    assert torch.equal(*found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [NARROW - 1, 2 * NARROW])
def test_small_tiles_are_for_narrow_heads_in_bf16(
    dtype: torch.dtype, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: list[Any] = []

    def attended(query: Tensor, *_: Tensor, kernel_options: Any, block_mask: Any) -> Tensor:
        options.append(kernel_options)
        return query

    monkeypatch.setattr("regard.arithmetic.flex.flex_attention", attended)
    mine = segments(3, 9, 2)
    given = (one.to(dtype) for one in query_key_value(9, 9, width))
    BY.attend(*given, BY.mask_of_segments(mine, mine))
    assert options == [SMALL_TILES if (dtype, width) == (torch.bfloat16, NARROW - 1) else None]


def test_a_tile_divides_a_block_of_the_mask() -> None:
    assert all(SIDE % size == 0 for name, size in SMALL_TILES.items() if "BLOCK" in name)
