"""A state dict of nn.Transformer is imported as the program computes, or is refused by name."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from exchange.imported import ours
from exchange.references import Paper, interleaved, normal
from regard.errors import ModelError, RecipeError
from regard.exchange.foreign import LONGEST_SOURCE, Foreign
from regard.exchange.from_torch import Program, read_torch
from regard.exchange.importing import write_imported
from regard.exchange.texts import Texts
from regard.run.model_directory import open_model
from regard.text.foreign.base import ForeignTokenizer

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")
NAMES = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{i}" for i in range(16))]
Read = Callable[..., Foreign]


@pytest.fixture
def paper() -> Paper:
    torch.manual_seed(3)
    return Paper(12, 4, 10, (1, 1))


@pytest.fixture
def state(paper: Paper) -> dict[str, Tensor]:
    """The layers and the two embeddings of a program."""
    state = {f"transformer.{k}": v for k, v in paper.transformer.state_dict().items()}
    return state | {f"{side}_embed.weight": normal(20, 12, std=1.0) for side in ("src", "tgt")}


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that saves a state dict and imports it."""
    (tmp_path / "v.txt").write_text("".join(f"{name}\n" for name in NAMES))

    def read(state: dict[str, Tensor], **facts: str) -> Foreign:
        torch.save(state, tmp_path / "model.pt")
        return read_torch(tmp_path / "model.pt", Program(4, **facts), Texts([tmp_path / "v.txt"]))

    return read


@pytest.mark.parametrize(
    ("facts", "begin"),
    [({"begin": "</s>"}, 2), ({"begin": "<pad>"}, 0), ({"pad": "</s>"}, 1)],
    ids=["fairseq", "T5", "padded by </s>"],
)
def test_a_piece_with_two_roles_is_one_entry_of_the_softmax(
    tmp_path: Path,
    paper: Paper,
    state: dict[str, Tensor],
    read: Read,
    facts: dict[str, str],
    begin: int,
) -> None:
    state |= {"generator.weight": normal(20, 12), "generator.bias": normal(20)}
    write_imported(tmp_path / "ours", read(state, positions="sinusoidal", **facts))
    model = open_model(tmp_path / "ours")
    assert isinstance(model.tokenizer, ForeignTokenizer)
    assert sorted(i for i in model.tokenizer.order.foreign_ids if i >= 0) == list(range(20))
    source, target = [7, 9, 2], [5, 6]
    x = state["src_embed.weight"][source] * math.sqrt(12) + interleaved(3, 12)
    y = state["tgt_embed.weight"][[begin, *target]] * math.sqrt(12) + interleaved(3, 12)
    expected = paper.states(x, y) @ state["generator.weight"].T + state["generator.bias"]
    assert torch.allclose(ours(model, source, target), expected, atol=1e-4)


def test_the_output_layer_may_be_the_targets_embedding(
    state: dict[str, Tensor], read: Read
) -> None:
    source, target = state["src_embed.weight"], state["tgt_embed.weight"]
    with pytest.raises(RecipeError, match=r"Give --generator NAME; there are: src_embed.weight"):
        read(state)
    both = {"source_embedding": "src_embed.weight", "target_embedding": "tgt_embed.weight"}
    short = {option: name.removesuffix(".weight") for option, name in both.items()}
    with pytest.raises(RecipeError, match="--source-embedding src: has no such matrix"):
        read(state, generator="tgt_embed.weight", source_embedding="src")
    with pytest.raises(RecipeError, match="--generator decode: has no such matrix"):
        read(state, generator="decode", positions="sinusoidal")
    for facts in ({}, both, short):
        found = read(state, generator="tgt_embed.weight", positions="sinusoidal", **facts)
        assert found.recipe.model.embeddings == "target"
        assert torch.equal(found.weights["embedding.tokens.weight"][3:], source[3:])
        assert torch.equal(found.weights["target_embedding.tokens.weight"], target)
    state["tgt_embed.bias"] = normal(20)
    biased = read(state, generator="tgt_embed", positions="sinusoidal").weights["output_bias"]
    assert torch.equal(biased, state.pop("tgt_embed.bias"))
    state["output_embedding.weight"] = state.pop("tgt_embed.weight")
    with pytest.raises(RecipeError, match="--generator"):  # and not one embedding for both sides
        read(state)


def test_one_matrix_may_have_all_three_roles(state: dict[str, Tensor], read: Read) -> None:
    del state["src_embed.weight"]
    found = read(state, generator="tgt_embed.weight", positions="sinusoidal")
    assert found.recipe.model.embeddings == "shared"
    assert torch.equal(found.weights["embedding.tokens.weight"], state["tgt_embed.weight"])
    state["generator.weight"] = normal(20, 12)
    assert (
        read(state, generator="generator.weight", positions="sinusoidal").recipe.model.embeddings
        == "inputs"
    )


@pytest.mark.parametrize(
    "shape", [(), (12,), (20,), (4, 6), (12, 60), (3, 60, 12), (1, 12)], ids=str
)
def test_a_tensor_that_is_no_table_of_positions_is_refused(
    state: dict[str, Tensor], read: Read, shape: tuple[int, ...]
) -> None:
    state |= {"generator.weight": normal(20, 12), "stray": torch.ones(shape)}
    with pytest.raises(ModelError, match="has stray, and no such weight is known"):
        read(state)
    said = re.escape(f"stray is {list(shape)}, and a table of positions is [positions, 12], of two")
    with pytest.raises(RecipeError, match=said):
        read(state, positions="stray")
    state["pos.pe"] = normal(1, 60, 12)
    with pytest.raises(ModelError, match="has stray"):
        read(state)
    del state["stray"]
    assert read(state).recipe.model.max_positions == 60


def test_a_transformer_without_biases(state: dict[str, Tensor], read: Read) -> None:
    state["generator.weight"] = normal(20, 12)
    bare = {name: one for name, one in state.items() if not name.endswith("bias")}
    found = read(bare, positions="sinusoidal").weights
    assert torch.equal(found["encoder_norm.bias"], torch.zeros(12))
    zeros = {name: torch.zeros_like(one) for name, one in state.items() if name.endswith("bias")}
    same = read(state | zeros, positions="sinusoidal").weights
    assert found.keys() == same.keys()
    assert all(torch.equal(found[name], same[name]) for name in found)


def test_a_table_of_positions_that_is_not_in_the_file_is_refused(
    state: dict[str, Tensor], read: Read
) -> None:
    state |= {"generator.weight": normal(20, 12), "pos.pe": normal(1, 60, 12)}
    assert read(state, positions="pos.pe").recipe.model.max_positions == 60
    with pytest.raises(ModelError, match=r"has pos\.pe, and no such weight is known"):
        read(state, positions="sinusoidal")
    del state["pos.pe"]
    with pytest.raises(RecipeError, match=r"has no other tensor pos\.pe: give --positions"):
        read(state, positions="pos.pe")


@pytest.mark.parametrize(("rows", "longest"), [(60, 60), (600, LONGEST_SOURCE)])
def test_a_source_is_no_longer_than_the_table_and_no_longer_than_usual(
    state: dict[str, Tensor], read: Read, rows: int, longest: int
) -> None:
    state |= {"generator.weight": normal(20, 12), "pos.pe": normal(1, rows, 12)}
    recipe = read(state).recipe
    assert (recipe.model.max_positions, recipe.data.max_length) == (rows, longest)


def test_what_the_user_tells_of_the_program_is_kept(state: dict[str, Tensor], read: Read) -> None:
    state["generator.weight"] = normal(20, 12)
    facts: dict[str, Any] = {"activation": "gelu", "norm_epsilon": 1e-3, "scale": False}
    model = read(state, positions="sinusoidal", **facts).recipe.model
    told = model.activation, model.norm_epsilon, model.embedding_scale
    assert told == ("gelu", 1e-3, False)


def test_positions_that_are_not_stored_must_be_named(state: dict[str, Tensor], read: Read) -> None:
    state["generator.weight"] = normal(20, 12)
    for kind in ("sinusoidal", "halves"):
        assert read(state, positions=kind).recipe.model.positions == kind
    with pytest.raises(RecipeError, match="has no table of positions: give --positions sinusoidal"):
        read(state)


def test_the_piece_that_begins_targets_is_named_if_the_vocabulary_lacks_it(
    state: dict[str, Tensor], read: Read
) -> None:
    state["generator.weight"] = normal(20, 12)
    with pytest.raises(RecipeError, match=r"model\.pt: its vocabulary has no <bos>, with which"):
        read(state, begin="<bos>")
