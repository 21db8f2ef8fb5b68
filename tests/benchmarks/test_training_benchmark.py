"""The training benchmark runs, and its figures are what they say."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import side_by_side as sides
import torch
import training
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from training_batches import Shape
from training_torch import Straightforward

from regard.corpus import write_corpus
from regard.cost import Flop
from regard.data.batches import Batches
from regard.recipe import ModelRecipe, Recipe


def test_flop_are_those_that_torch_counts() -> None:
    layers, d_model, d_ff, heads, vocabulary = 3, 32, 48, 2, 101
    sentences, source, target = 5, 11, 7
    model = Straightforward(Shape(layers, d_model, d_ff, heads, 0.0, 0.1, vocabulary))
    ids = torch.randint(1, vocabulary, (sentences, source + target))
    # FlopCounterMode does not count the products of the fused kernel.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(ids[:, :source], ids[:, source:]).sum().backward()
    recipe = ModelRecipe(layers=layers, d_model=d_model, d_ff=d_ff, heads=heads)
    counted = training.flop(recipe, vocabulary, [source] * sentences, [target] * sentences)
    assert counter.get_total_flops() == sum(counted)


class Lengths:
    """Pairs of given lengths."""

    def __init__(self, source: list[int], target: list[int]):
        self.source_lengths, self.target_lengths = np.array(source), np.array(target)

    def __len__(self) -> int:
        return len(self.source_lengths)

    def source(self, i: int, /) -> np.ndarray:
        return np.arange(self.source_lengths[i]) + 3

    def target(self, i: int, /) -> np.ndarray:
        return np.arange(self.target_lengths[i]) + 3


@pytest.mark.parametrize("layout", ["grouped", "packed"])
def test_sentences_of_batches_keep_their_lengths(layout: str) -> None:
    source, target = [3, 5, 2, 7, 11], [4, 1, 2, 9, 13]
    recipe = Recipe().but(source_tokens=64, target_tokens=64, row_length=16)
    batches = Batches(Lengths(source, target), recipe.data, 1, layout=layout)
    found = training.lengths(batches.take(batches.batches_per_epoch))
    assert sorted(zip(*found, strict=True)) == sorted(zip(source, target, strict=True))


def test_a_tiny_run_leaves_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path / "text", seed=1, sentences=200)
    command = (
        f"training.py --source {tmp_path}/text.en --target {tmp_path}/text.de --shape tiny "
        f"--tokens 256 --rounds 1 --steps 2 --threads 1 --layout packed --keep {tmp_path} "
        "--only regard torch.nn.Transformer"
    )
    monkeypatch.setattr(sys, "argv", command.split())
    training.main()
    assert "regard is faster" in capfd.readouterr().out
    (path,) = tmp_path.glob("*-training-tiny.json")
    record = json.loads(path.read_text())
    assert record["failures"] == {}
    assert record["text"] == ["text.en", "text.de"]
    assert record["layouts"] == {"regard": "packed", "torch.nn.Transformer": "grouped"}
    for contender in record["contenders"].values():
        assert contender["threads"] == 1
        assert contender["version"]["torch"] == torch.__version__
        assert contender["tokens_per_second"]["median"] > 0
        (turn,) = contender["turns"]
        assert 256 < turn["tokens"] <= 2 * 2 * 256
        assert 5 < turn["loss"] < 8  # about ln 400: both learn the same task
    assert record["contenders"]["torch.nn.Transformer"]["precision"] == "torch.float32"
    assert record["contenders"]["regard"]["regard_is_faster"]["median"] == 1


def test_a_share_is_of_the_ceiling_in_the_same_precision() -> None:
    def turns(precision: str, *seconds: float) -> sides.Result:
        answers = [{"seconds": s, "tokens": 60, "loss": 7.0} for s in seconds]
        return sides.Result("some", {"precision": precision}, answers)

    limits = [{"flop_per_second": {"torch.bfloat16": 200.0}} for _ in range(2)]
    results = {
        training.OURS: turns("torch.bfloat16", 2, 4),
        training.OURS_INT8: turns("int8", 1, 2),
        training.CEILING: sides.Result("ceiling", {}, limits),
    }
    work = dict.fromkeys(training.REGARD, [Flop(weights=200, attention=0)] * 2)
    found = training.summary(results, work)["contenders"]
    assert found[training.OURS]["of_ceiling"] == {"median": 0.375, "low": 0.25, "high": 0.5}
    assert "of_ceiling" not in found[training.OURS_INT8]
    assert found[training.OURS]["int8_is_faster"]["median"] == 2
    assert found[training.OURS_INT8]["regard_is_faster"]["median"] == 0.5


def test_help_says_how_to_run_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["training.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        training.main()
    assert ended.value.code == 0
    assert "make bench-setup" in capsys.readouterr().out
