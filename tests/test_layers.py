"""§3.3 to §3.5 by hand."""

import math
from typing import TypeVar

import pytest
import torch

from regard.arithmetic.cpu import Cpu
from regard.arithmetic.plain import PLAIN
from regard.arithmetic.products import Products
from regard.equations import Computing
from regard.errors import ModelError
from regard.families.embedding import TokenEmbedding
from regard.layers import AddNorm, Embedding, FeedForward, sinusoids
from regard.recipe import ModelRecipe

ModuleType = TypeVar("ModuleType", bound=Computing)


def plainly(module: ModuleType) -> ModuleType:
    """The module, which now computes by the definitions."""
    module.by = PLAIN
    return module


def test_sinusoids_are_interleaved_with_the_papers_exponent() -> None:
    table = sinusoids(30, 6)
    for position, i in ((0, 0), (1, 0), (17, 1), (29, 2)):
        angle = position / 10000 ** (2 * i / 6)
        assert float(table[position, 2 * i]) == pytest.approx(math.sin(angle), abs=1e-6)
        assert float(table[position, 2 * i + 1]) == pytest.approx(math.cos(angle), abs=1e-6)


def test_feed_forward_by_hand() -> None:
    layer = plainly(FeedForward(d_model=1, d_ff=2))
    with torch.no_grad():
        layer.W_1.weight.copy_(torch.tensor([[2.0], [-1.0]]))
        layer.W_1.bias.copy_(torch.tensor([1.0, 0.5]))
        layer.W_2.weight.copy_(torch.tensor([[3.0, 5.0]]))
        layer.W_2.bias.copy_(torch.tensor([0.25]))
    # max(0, (2x + 1, -x + 0.5)) at x = 2: (5, 0); at x = -1: (0, 1.5)
    torch.testing.assert_close(
        layer(torch.tensor([[2.0], [-1.0]])), torch.tensor([[15.25], [7.75]])
    )


def test_norm_comes_after_the_sum() -> None:
    layer = plainly(AddNorm(2, dropout=0.0))
    out = layer(torch.tensor([[1.0, 5.0]]), torch.tensor([[2.0, 4.0]]))
    torch.testing.assert_close(out, torch.tensor([[-1.0, 1.0]]))  # the sum is (3, 9)


def test_nothing_is_dropped_after_training() -> None:
    x, y = torch.randn(5, 8), torch.randn(5, 8)
    layer, inner = plainly(AddNorm(8, dropout=0.9)), plainly(FeedForward(8, 16, relu_dropout=0.9))
    assert not torch.equal(layer(x, y), layer(x, y))
    assert not torch.equal(inner(x), inner(x))
    expected = torch.nn.functional.layer_norm(x + y, (8,), eps=1e-6)
    torch.testing.assert_close(layer.eval()(x, y), expected)
    assert torch.equal(inner.eval()(x), inner(x))


def test_embedding_is_scaled_and_positioned() -> None:
    embedding = Embedding(ModelRecipe(d_model=4, dropout=0.0), vocabulary=11).eval()
    torch.nn.init.normal_(embedding.tokens.weight)
    ids, positions = torch.tensor([[3, 7]]), torch.tensor([[0, 600]])
    expected = embedding.tokens.weight[[3, 7]] * 2 + sinusoids(601, 4)[[0, 600]]
    torch.testing.assert_close(embedding(ids, positions, longest=601)[0], expected)


@pytest.mark.parametrize("made", [Embedding, TokenEmbedding])
def test_dropout_of_words_takes_whole_vectors_and_leaves_positions(made: type[Embedding]) -> None:
    torch.manual_seed(2)
    embedding = made(ModelRecipe(d_model=4, dropout=0.0, word_dropout=0.25), vocabulary=11)
    torch.nn.init.normal_(embedding.tokens.weight)
    for embedding.by in PLAIN, Cpu(Products()):
        ids, positions = torch.randint(11, (80, 50)), torch.arange(50).expand(80, 50)
        read = embedding.eval()(ids, positions, longest=50)
        place = read - 2 * embedding.tokens(ids)  # sqrt(d_model) = 2
        learned = embedding.train()(ids, positions, longest=50)
        dropped = (learned - place).abs().amax(-1) < 1e-6
        assert float(dropped.float().mean()) == pytest.approx(0.25, abs=0.03)
        kept = (learned - place)[~dropped] * 0.75
        torch.testing.assert_close(kept, (read - place)[~dropped], atol=1e-4, rtol=1e-3)


def test_positions_that_a_search_has_made_serve_training_too() -> None:
    embedding = plainly(Embedding(ModelRecipe(d_model=4, dropout=0.0), vocabulary=11))
    with torch.inference_mode():
        made = embedding.table(601)
    assert embedding.positions is made
    assert not made.is_inference()  # such a tensor has no gradient and cannot be compiled
    embedding(torch.tensor([[3]]), torch.tensor([[600]]), longest=601).sum().backward()
    assert embedding.tokens.weight.grad is not None


def test_embedding_starts_with_deviation_one_over_root_d_model() -> None:
    from regard.transformer import Transformer

    torch.manual_seed(1)
    weight = Transformer(ModelRecipe(d_model=64, layers=1), 5003).embedding.tokens.weight
    assert float(weight.detach().std()) == pytest.approx(64**-0.5, rel=0.01)


def test_learned_positions_have_an_end() -> None:
    recipe = ModelRecipe(d_model=4, positions="learned", max_positions=13)
    embedding = Embedding(recipe, vocabulary=11).eval()
    torch.nn.init.zeros_(embedding.positions)
    torch.nn.init.ones_(embedding.tokens.weight)
    ids = torch.zeros(1, 14, dtype=torch.long)
    last = torch.tensor([[12] + 13 * [0]])  # a row may hold several sentences, and be wider
    assert torch.equal(embedding(ids, last, longest=14), torch.full((1, 14, 4), 2.0))
    with pytest.raises(ModelError, match=r"14 pieces.*13 positions"):
        embedding(ids, last + 1, longest=14)
