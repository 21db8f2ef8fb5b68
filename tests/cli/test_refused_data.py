"""Prepared data, tokenizers and translations to score that are not what they should be."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cli.refusing import (
    GOOD,
    World,
    forked,
    process,
    refused,
    sentence,
    unchanged,
)
from cli.spoiling import Mark, flip, truncate


def in_manifest(data: Path, name: str) -> None:
    """Have the manifest give the present size of a file."""
    manifest = json.loads((data / "manifest.json").read_bytes())
    manifest["files"][name]["bytes"] = (data / name).stat().st_size
    (data / "manifest.json").write_text(json.dumps(manifest))


def _pickled(data: Path) -> None:
    name = "train.source.ids.npy"
    marks = np.array([Mark(data / "unpickled")], object)
    np.save(data / name, marks, allow_pickle=True)
    in_manifest(data, name)


def _not_rising(data: Path) -> None:
    path = data / "train.target.starts.npy"
    starts = np.load(path)
    starts[3] = starts[-1]
    np.save(path, starts)


def _beyond_the_vocabulary(data: Path) -> None:
    path = data / "train.source.ids.npy"
    ids = np.load(path)
    ids[1] = 300
    np.save(path, ids)


DATA: dict[str, tuple[Callable[[Path], object], str, str]] = {
    # what is done to prepared data; the file that the sentence begins with; the remedy
    "removed": (shutil.rmtree, "", "make it with `regard prepare`"),
    "a file": (lambda d: (shutil.rmtree(d), d.write_text("")), "", "make it with `regard prepare`"),
    "no manifest": (lambda d: (d / "manifest.json").unlink(), "", "make it with `regard prepare`"),
    "manifest cut": (lambda d: truncate(d / "manifest.json"), "/manifest.json", "prepare the data"),
    "manifest a bomb": (
        lambda d: (d / "manifest.json").write_text("[" * 10**6),
        "/manifest.json",
        "prepare the data again",
    ),
    "manifest of another thing": (
        lambda d: (d / "manifest.json").write_text("{}"),
        "/manifest.json",
        "prepare the data again",
    ),
    "another tokenizer": (
        lambda d: flip(d / "tokenizer.json"),
        "/tokenizer.json",
        "prepare the data again",
    ),
    "ids truncated": (
        lambda d: truncate(d / "train.source.ids.npy"),
        "/train.source.ids.npy",
        "prepare the data again",
    ),
    "ids removed": (
        lambda d: (d / "valid.target.ids.npy").unlink(),
        "/valid.target.ids.npy",
        "cannot be read",
    ),
    "ids no array": (
        lambda d: (d / "train.source.ids.npy").write_bytes(
            b"x" * (d / "train.source.ids.npy").stat().st_size
        ),
        "/train.source.ids.npy",
        "prepare the data again",
    ),
    "ids beyond the vocabulary": (
        _beyond_the_vocabulary,
        "/train.source.ids.npy",
        "prepare the data again",
    ),
    "ids pickled": (_pickled, "/train.source.ids.npy", "prepare the data again"),
    "starts not rising": (_not_rising, "/train.target.starts.npy", "prepare the data again"),
    "validation text shorter": (
        lambda d: (d / "valid.source.txt").write_text("one line\n"),
        "/valid.source.txt",
        "prepare the data again",
    ),
}


@pytest.mark.parametrize("harm", DATA)
def test_prepared_data_that_is_not_whole(world: World, harm: str) -> None:
    do, place, remedy = DATA[harm]
    data = world.copy("data")
    do(data)
    with unchanged(world.folder):
        said = refused("train", "--data", data, *world.out, *world.recipe)
    assert said.startswith(f"{data}{place}: ")
    assert remedy in said
    assert not (data / "unpickled").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the tokenizer: No such file or directory"),
        (b"", "damaged, or not a tokenizer"),
        (b"{}", "damaged, or not a tokenizer"),
        (b"\xff\xfe", "damaged, or not a tokenizer: it is not UTF-8"),
        (b"[" * 10**5, "damaged, or not a tokenizer"),
    ],
    ids=["missing", "empty", "another JSON", "binary", "a bomb"],
)
def test_a_tokenizer_that_is_none(world: World, content: bytes | None, said: str) -> None:
    path = world.folder / "mine.json"
    if content is not None:
        path.write_bytes(content)
    with unchanged(world.folder):
        answer = refused("prepare", *world.text, *world.out, "--tokenizer", path)
    assert answer.startswith(f"{path}: {said}")


def test_scores_need_a_reference_for_each_line(world: World) -> None:
    short = world.write("short.txt", GOOD * 3)
    said = refused("score", world.folder / "source.en", "-r", world.text[3], "-r", short)
    assert said.startswith(f"{short}: has 3 lines for the 75 of ")


@pytest.mark.parametrize("side", ["hypothesis", "reference"])
def test_nothing_to_score(world: World, side: str) -> None:
    empty = world.write("empty.txt", "")
    paths = [empty, world.text[1]] if side == "hypothesis" else [world.text[1], empty]
    assert refused("score", paths[0], "-r", paths[1]).startswith(f"{empty}: ")


def test_a_refusal_of_the_process(world: World) -> None:
    flip(world.copy("model") / "model.safetensors")
    result = forked("translate", world.folder / "model")
    assert sentence(result).startswith(f"{world.folder}/model/model.safetensors: damaged: ")
    assert result.stdout == ""


def test_nobody_can_take_the_output(world: World) -> None:
    with Path("/dev/full").open("wb") as full:
        result = process("translate", world.made / "model", stdout=full)
    assert sentence(result).startswith("standard output: No space left on device: make room")
