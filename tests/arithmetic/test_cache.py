"""A cache holds what was appended, in order, however large its capacity is."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.cache import Cache

SENTENCES, HEADS, D_K, D_V = 3, 2, 5, 7


def held(cache: Cache, multiple: int) -> tuple[Tensor, Tensor]:
    for store in cache.keys, cache.values:
        assert store.shape[2] % multiple == 0
        assert not store[:, :, cache.slots :].any()  # what is not in use is zero
    return cache.keys[:, :, : cache.slots], cache.values[:, :, : cache.slots]


@pytest.mark.parametrize("multiple", [1, 16])
@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 19), min_size=1, max_size=9), st.data())
def test_what_is_appended_is_held(multiple: int, parts: list[int], data: st.DataObject) -> None:
    torch.manual_seed(1)
    keys = [torch.randn(SENTENCES, HEADS, n, D_K) for n in parts]
    values = [torch.randn(SENTENCES, HEADS, n, D_V) for n in parts]
    cache = Cache(keys[0], values[0], multiple)
    for new in zip(keys[1:], values[1:], strict=True):
        places = torch.arange(cache.slots, cache.slots + new[0].shape[2]).expand(SENTENCES, -1)
        cache.append(*new, data.draw(st.sampled_from([places, None])))
    expected = torch.cat(keys, 2), torch.cat(values, 2)
    for found, right in zip(held(cache, multiple), expected, strict=True):
        assert torch.equal(found, right)

    some = torch.tensor(data.draw(st.lists(st.integers(0, SENTENCES - 1), min_size=1)))
    for found, right in zip(held(cache.of(some), multiple), expected, strict=True):
        assert torch.equal(found, right[some])

    if total := sum(parts):
        chosen = st.lists(st.integers(0, total - 1), min_size=4, max_size=4)
        slots = torch.tensor([data.draw(chosen) for _ in range(SENTENCES)])
        for found, right in zip(held(cache.only(slots), multiple), expected, strict=True):
            for s in range(SENTENCES):
                assert torch.equal(found[s], right[s][:, slots[s]])


def test_new_slots_are_written_where_each_sentence_has_room() -> None:
    cache = Cache(torch.zeros(2, 1, 3, 4), torch.zeros(2, 1, 3, 5), 16)
    keys, values = torch.ones(2, 1, 2, 4), torch.ones(2, 1, 2, 5)
    cache.append(keys, values, torch.tensor([[3, 4], [1, 2]]))
    assert cache.slots == 5
    for store in cache.keys, cache.values:
        assert store[0].any(-1).nonzero()[:, 1].tolist() == [3, 4]
        assert store[1].any(-1).nonzero()[:, 1].tolist() == [1, 2]


def test_some_sentences_of_a_cache_with_room_keep_the_room() -> None:
    cache = Cache(torch.randn(2, 1, 3, 4), torch.randn(2, 1, 3, 5)).with_room(8)
    some = cache.of(torch.tensor([1]))
    some.append(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 5), torch.tensor([[3]]))
    assert some.slots == some.keys.shape[2] == 8
    assert some.keys[0, 0, 3].eq(1).all()


def test_the_cache_made_of_another_is_its_own() -> None:
    first = Cache(torch.randn(2, 1, 3, 4), torch.randn(2, 1, 3, 4))
    other = first.of(torch.tensor([1]))
    before = other.keys.clone()
    first.append(torch.ones(2, 1, 2, 4), torch.ones(2, 1, 2, 4), torch.tensor([[3, 4]] * 2))
    assert torch.equal(other.keys, before)
    assert other.slots == 3
