"""A model that is damaged, of another kind, or made to do harm."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cli.refusing import GOOD, World, refused, unchanged
from cli.spoiling import Mark, flip, reseal, resealed, seal_bare, truncate
from regard.files.manifest import seal


def in_toml(directory: Path, old: str, new: str) -> None:
    """Change recipe.toml, and reseal."""
    text = (directory / "recipe.toml").read_text()
    assert old in text
    resealed(directory, "recipe.toml", text.replace(old, new).encode())


def reshape(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    weights["embedding.tokens.weight"] = torch.zeros(300, 17)
    save_file(weights, directory / "model.safetensors")
    reseal(directory)


def without_a_weight(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    del weights["decoder.0.feed_forward.W_1.bias"]
    save_file(weights, directory / "model.safetensors")
    reseal(directory)


def not_numbers(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    weights = {name: torch.full_like(weight, torch.nan) for name, weight in weights.items()}
    save_file(weights, directory / "model.safetensors")
    reseal(directory)


def beyond_the_vocabulary(directory: Path) -> None:
    """A tokenizer, ours in all but that an id is beyond the 300 rows of the embedding."""
    content = json.loads((directory / "tokenizer.json").read_bytes())
    vocabulary = content["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.__getitem__)
    vocabulary[last] = 5000
    resealed(directory, "tokenizer.json", json.dumps(content).encode())


def outside(directory: Path) -> None:
    (directory.parent / "secret").write_text("mine")
    reseal(directory, "../secret")


MODELS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    # what is done to a model directory; the file that the sentence begins with; the remedy
    "removed": (shutil.rmtree, "", "no such model directory: name one"),
    "a file": (lambda m: (shutil.rmtree(m), m.write_text("")), "", "is a file: name the directory"),
    "empty": (lambda m: (shutil.rmtree(m), m.mkdir()), "", "no manifest.json"),
    "no manifest": (lambda m: (m / "manifest.json").unlink(), "", "copy it again"),
    "manifest a folder": (
        lambda m: ((m / "manifest.json").unlink(), (m / "manifest.json").mkdir()),
        "/manifest.json",
        "copy it again",
    ),
    "manifest empty": (
        lambda m: (m / "manifest.json").write_text(""),
        "/manifest.json",
        "copy it again",
    ),
    "manifest a list": (
        lambda m: (m / "manifest.json").write_text("[]"),
        "/manifest.json",
        "copy it again",
    ),
    "manifest binary": (
        lambda m: (m / "manifest.json").write_bytes(b"\xff\x00"),
        "/manifest.json",
        "copy it again",
    ),
    "manifest a bomb": (
        lambda m: (m / "manifest.json").write_text("[" * 10**6),
        "/manifest.json",
        "copy it again",
    ),
    "manifest a huge number": (
        lambda m: (m / "manifest.json").write_text("9" * 10**4),
        "/manifest.json",
        "copy it again",
    ),
    "manifest changed": (lambda m: flip(m / "manifest.json"), "/manifest.json", "copy it again"),
    "manifest without files": (
        lambda m: seal_bare(m, {"files": None}),
        "/manifest.json",
        "copy it again",
    ),
    "format of tomorrow": (lambda m: reseal(m, format=2), "/manifest.json", "use the version"),
    "names a file outside": (outside, "/manifest.json", "do not use this model"),
    "not a model but a checkpoint": (lambda m: seal(m, [], {}), "", "name a directory that"),
    "weights changed": (
        lambda m: flip(m / "model.safetensors"),
        "/model.safetensors",
        "copy it again",
    ),
    "weights truncated": (
        lambda m: truncate(m / "model.safetensors"),
        "/model.safetensors",
        "copy it again",
    ),
    "weights removed": (
        lambda m: (m / "model.safetensors").unlink(),
        "/model.safetensors",
        "copy it again",
    ),
    "weights truncated and resealed": (
        lambda m: (truncate(m / "model.safetensors"), reseal(m)),
        "/model.safetensors",
        "copy it again",
    ),
    "weights empty and resealed": (
        lambda m: resealed(m, "model.safetensors", b""),
        "/model.safetensors",
        "copy it again",
    ),
    "weights a header bomb": (
        lambda m: resealed(m, "model.safetensors", (2**62).to_bytes(8, "little") + b"{"),
        "/model.safetensors",
        "copy it again",
    ),
    "weights of another shape": (reshape, "", "embedding.tokens.weight is [300, 17]"),
    "a weight missing": (without_a_weight, "", "decoder.0.feed_forward.W_1.bias is missing"),
    "weights that are no numbers": (not_numbers, "the model's logits", "weights are damaged"),
    "tokenizer changed": (lambda m: flip(m / "tokenizer.json"), "/tokenizer.json", "copy it again"),
    "tokenizer not one": (
        lambda m: resealed(m, "tokenizer.json", b'{"version": "1.0"}'),
        "/tokenizer.json",
        "damaged, or not a tokenizer",
    ),
    "tokenizer a bomb": (
        lambda m: resealed(m, "tokenizer.json", b'{"model":' * 10**5),
        "/tokenizer.json",
        "damaged, or not a tokenizer",
    ),
    "tokenizer with a gap": (beyond_the_vocabulary, "/tokenizer.json", "learn it with"),
    "recipe changed": (lambda m: flip(m / "recipe.toml"), "/recipe.toml", "copy it again"),
    "recipe with an unknown key": (
        lambda m: in_toml(m, "heads =", "hats ="),
        "/recipe.toml",
        "unknown key model.hats: did you mean model.heads?",
    ),
    "recipe of another width": (
        lambda m: in_toml(m, "d_model = 16", "d_model = 18"),
        "",
        "the weights do not fit recipe.toml",
    ),
    "recipe of endless layers": (
        lambda m: in_toml(m, "layers = 1", "layers = 2000000000"),
        "/recipe.toml",
        "less than or equal to 1000",
    ),
}


@pytest.mark.parametrize("harm", MODELS)
def test_a_model_that_is_not_whole(world: World, harm: str) -> None:
    do, place, remedy = MODELS[harm]
    model = world.copy("model")
    do(model)
    with unchanged(world.folder):
        said = refused("translate", model, stdin=GOOD.encode())
    assert said.startswith(place if place[:1].isalpha() else f"{model}{place}: ")
    assert remedy in said


def test_weights_are_never_unpickled(world: World) -> None:
    model, mark = world.copy("model"), world.folder / "unpickled"
    for weights in (pickle.dumps(Mark(mark)), pickle.dumps({"a": Mark(mark)}, protocol=0)):
        resealed(model, "model.safetensors", weights)
        assert "not safetensors" in refused("translate", model, stdin=GOOD.encode())
    torch.save({"a": Mark(mark)}, model / "model.safetensors")
    reseal(model)
    assert "not safetensors" in refused("translate", model, stdin=GOOD.encode())
    assert not mark.exists()
    pickle.loads(pickle.dumps(Mark(mark)))
    assert mark.exists()


def test_an_unfinished_run_says_how_to_go_on(world: World) -> None:
    run = world.copy("run")
    for name in ("model.safetensors", "manifest.json"):
        (run / name).unlink()
    said = refused("translate", run, stdin=GOOD.encode())
    assert said.startswith(f"{run}: training has not finished: continue with regard train")
    assert f"regard average {run}" in said


def test_prepared_data_is_no_model(world: World) -> None:
    said = refused("translate", world.made / "data", stdin=GOOD.encode())
    assert said.startswith(f"{world.made / 'data'}")
