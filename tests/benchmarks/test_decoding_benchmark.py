"""benchmarks/decoding.py: its peers compute what regard does, and its figures are what they say."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from regard.data.batches import one_per_row
from regard.data.grammar import example
from regard.run.model_directory import open_model, write_model
from regard.search import search
from regard.text.tokenizer import BOS, EOS, PAD

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path += [str(BENCHMARKS), str(BENCHMARKS / "peers")]
import decoding  # noqa: E402
import decoding_regard  # noqa: E402
import side_by_side  # noqa: E402

LINES = [example(1, i).source for i in range(40)]
RECIPE = decoding.SHAPES["tiny"].but(layers=2, d_model=24, d_ff=40, heads=3)
CTRANSLATE2, MARIAN = (
    next(c for c in decoding.CONTENDERS if c.name == name)
    for name in ("CTranslate2 fp32", "Marian")
)


@pytest.fixture(scope="module")
def lively(tmp_path_factory) -> Path:
    """A model whose every weight matters, and whose outputs end after some tokens."""
    directory = tmp_path_factory.mktemp("decoding")
    decoding.random_model(directory / "plain", RECIPE, LINES)
    model = open_model(directory / "plain")
    torch.manual_seed(2)
    weights = model.transformer.state_dict()
    for name, weight in weights.items():
        if weight.dim() == 1:
            weight += 0.3 * torch.randn_like(weight)
    weights["decoder.1.add_norm_3.norm.bias"] += 3 * weights["embedding.tokens.weight"][EOS]
    write_model(directory / "lively", model.recipe, model.tokenizer, weights, {})
    return directory / "lively"


def task(directory: Path, *, beam: int = 4, length: int | None = None) -> decoding.Task:
    model = open_model(directory)
    recipe = model.recipe.but(beam=beam, alpha=0.0)
    return decoding.Task(directory, recipe, model.tokenizer, LINES, length)


@pytest.mark.slow
@pytest.mark.parametrize("peer", [CTRANSLATE2, MARIAN], ids=lambda peer: peer.name)
def test_a_peer_translates_as_regard_does(lively, peer):
    if not peer.python.exists():
        pytest.skip(f"there is no {peer.name}: `make bench-setup` installs it")
    for beam in (1, 4):
        contenders = [decoding.OURS[0], peer]
        args = Namespace(rounds=0, threads=1)
        _, outputs, failures = decoding.run(task(lively, beam=beam), contenders, args, alone=False)
        assert not failures
        ours, theirs = outputs[contenders[0].name], outputs[peer.name]
        assert len(set(ours)) > len(LINES) / 2  # else they would agree too easily
        assert len({len(text) for text in ours}) > 5
        assert sum(a == b for a, b in zip(ours, theirs, strict=True)) >= len(LINES) - 1
