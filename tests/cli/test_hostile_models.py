"""A model by somebody who means harm, and can compute checksums: refused, and nothing else happens.

What may fill the memory or wait for ever is done in a process that may take little of either.
"""

import gzip
import json
import lzma
import os
import resource
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import zstandard
from safetensors.torch import load_file, save_file

from cli.refusing import Result, World, refused, sentence
from cli.spoiling import reseal, resealed, seal_bare
from regard.run.model_directory import MODEL_FILES
from run.killing import Fork

SPARE_MEMORY, SECONDS = 2**30, 100


def _in_a_cell(argv: list[str], folder: Path) -> None:
    with (folder / "nothing").open("rb") as stdin, (folder / "said").open("wb") as said:
        for stream, file in ((0, stdin), (1, said), (2, said)):
            os.dup2(file.fileno(), stream)
    taken = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (taken + SPARE_MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    from regard.cli.main import main

    sys.argv = ["regard", *argv]
    main()


def refused_in_a_cell(world: World, *argv: str | Path) -> str:
    """The sentence of a command that may take a gigabyte and a minute, not more."""
    cell = world.folder / "cell"
    cell.mkdir()
    (cell / "nothing").touch()
    process = Fork(target=_in_a_cell, args=([*map(str, argv)], cell))
    process.start()
    process.join(3 * SECONDS)
    process.kill()
    process.join()
    return sentence(Result(process.exitcode or 0, "", (cell / "said").read_text()))


def linked(path: Path, target: Path) -> None:
    path.unlink()
    path.symlink_to(target)


def moved_and_linked(path: Path) -> None:
    path.rename(path.parent.parent / "outside")
    path.symlink_to(path.parent.parent / "outside")


NO_FILES: dict[str, Callable[[Path], object]] = {
    "a link to the same file elsewhere": moved_and_linked,
    "a link to the password file": lambda path: linked(path, Path("/etc/passwd")),
    "a link to what has no end": lambda path: linked(path, Path("/dev/zero")),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("part", MODEL_FILES)
@pytest.mark.parametrize("harm", NO_FILES)
def test_nothing_but_plain_files_is_opened(world: World, harm: str, part: str) -> None:
    model = world.copy("model")
    NO_FILES[harm](model / part)
    said = refused_in_a_cell(world, "translate", model)
    assert said.startswith(f"{model}/{part}: ")
    assert ("is a symbolic link" if "link" in harm else "is not a regular file") in said


@pytest.mark.parametrize(
    "name",
    ["../secret", "/etc/passwd", "a/../recipe.toml", "", "..", ".", "\0", "\ud800", "x" * 300],
)
def test_names_that_lead_elsewhere(world: World, name: str) -> None:
    model = world.copy("model")
    (world.folder / "secret").write_text("mine")
    manifest = json.loads((model / "manifest.json").read_bytes())
    manifest.pop("checksum")
    manifest["files"][name] = "0" * 64
    seal_bare(model, manifest)
    assert refused("translate", model).startswith(str(model))


def test_a_name_cannot_command_the_terminal(world: World) -> None:
    model = world.copy("model")
    seal_bare(model, {"files": {"\n\x1b[31m": ""}})
    said = refused("translate", model)
    assert "\x1b" not in said
    assert r"\x1b[31m: No such file" in said


def sparse(path: Path, size: int) -> None:
    path.unlink()
    with path.open("wb") as file:
        file.truncate(size)


def weights(model: Path, header: bytes | dict[str, Any], data: bytes = b"") -> None:
    """model.safetensors with a header that says so."""
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    content = struct.pack("<Q", len(content)) + content + data
    resealed(model, "model.safetensors", content)


def tensor(shape: list[int], start: int, end: int) -> dict[str, object]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}


def in_toml(model: Path, **values: object) -> None:
    text = (model / "recipe.toml").read_text()
    for key, value in values.items():
        [line] = [line for line in text.splitlines() if line.startswith(f"{key} = ")]
        text = text.replace(line, f"{key} = {value}")
    resealed(model, "recipe.toml", text.encode())


def in_json(model: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((model / "tokenizer.json").read_bytes())
    change(content)
    resealed(model, "tokenizer.json", json.dumps(content).encode())


def more_pieces(content: dict[str, Any], count: int) -> None:
    known = content["model"]["vocab"]
    known.update({f"{i:x}.": len(known) + i for i in range(count)})


GIGANTIC: dict[str, tuple[Callable[[Path], object], str]] = {
    "manifest": (lambda m: sparse(m / "manifest.json", 10**11), "more than 1,048,576 bytes"),
    "recipe": (lambda m: (sparse(m / "recipe.toml", 10**8), reseal(m)), "a recipe has at most"),
    "tokenizer": (lambda m: (sparse(m / "tokenizer.json", 10**8), reseal(m)), "64 MiB"),
    "shape": (lambda m: weights(m, {"a": tensor([10**12, 10**9], 0, 4)}, b"1234"), "overflow"),
    "empty shape": (lambda m: weights(m, {"a": tensor([0, 2**62], 0, 0)}), "the weights have 0"),
    "header": (lambda m: weights(m, b"{}" + b" " * 2**23), "its header has more than 8 MiB"),
    "layers": (lambda m: in_toml(m, layers=10**9), "less than or equal to 1000"),
    "many layers": (lambda m: in_toml(m, layers=1000), "the recipe needs 5,57"),
    "width": (lambda m: in_toml(m, d_model=10**9), "less than or equal to 32768"),
    "wide enough": (lambda m: in_toml(m, d_model=32768), "the recipe needs 2"),
    "heads": (lambda m: in_toml(m, heads=2**31 - 1), "the recipe needs 3"),
    "heads and keys": (lambda m: in_toml(m, heads=2**31 - 1, d_k=2**31 - 1), "the recipe needs "),
    "positions": (
        lambda m: in_toml(m, positions='"learned"', max_positions=2**31 - 1),
        "the recipe needs 34,359,7",
    ),
    "beam": (lambda m: in_toml(m, beam=10**9), "less than or equal to 1000"),
    "search": (lambda m: in_toml(m, beam=1000, max_extra=10_000), "is more than 100,000"),
    "vocabulary": (lambda m: in_json(m, lambda c: more_pieces(c, 900_000)), "recipe needs 14,4"),
    "entries": (
        lambda m: resealed(m, "tokenizer.json", b"[" + b"[]," * 5_000_000 + b"[]]"),
        "it has more than 1,000,000 entries",
    ),
}


@pytest.mark.parametrize("what", GIGANTIC)
def test_what_would_be_gigantic(world: World, what: str) -> None:
    harm, said = GIGANTIC[what]
    model = world.copy("model")
    harm(model)
    assert said in refused_in_a_cell(world, "translate", model)


def test_a_beam_too_wide_for_the_vocabulary(world: World) -> None:
    model = world.copy("model")
    in_toml(model, beam=1000)
    in_json(model, lambda c: more_pieces(c, 200_000))
    tensors = load_file(model / "model.safetensors")
    pieces = len(json.loads((model / "tokenizer.json").read_bytes())["model"]["vocab"])
    tensors["embedding.tokens.weight"] = torch.zeros(pieces, 16)
    save_file(tensors, model / "model.safetensors")
    reseal(model)
    assert "a beam of 1000 is too wide" in refused_in_a_cell(world, "translate", model)


WEIGHTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "overlap": (
        lambda m: weights(m, {"a": tensor([1], 0, 4), "b": tensor([1], 0, 4)}, b"1234"),
        "invalid offset",
    ),
    "reach beyond the end": (lambda m: weights(m, {"a": tensor([9], 0, 36)}), "not fully covered"),
    "have a name twice": (
        lambda m: weights(
            m,
            b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
            b'"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
            b"12345678",
        ),
        "invalid offset",
    ),
    "are nested": (lambda m: weights(m, b'{"a":' + b"[" * 10**6), "recursion limit"),
}


@pytest.mark.parametrize("they", WEIGHTS)
def test_weights_that(world: World, they: str) -> None:
    harm, said = WEIGHTS[they]
    model = world.copy("model")
    harm(model)
    answer = refused("translate", model)
    assert answer.startswith(f"{model}/model.safetensors: damaged or not safetensors: ")
    assert said in answer


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.bool, torch.complex64])
def test_weights_that_are_not_fp32(world: World, dtype: torch.dtype) -> None:
    model = world.copy("model")
    tensors = load_file(model / "model.safetensors")
    save_file({name: t.to(dtype) for name, t in tensors.items()}, model / "model.safetensors")
    reseal(model)
    assert f"is {dtype}" in refused("translate", model)


SLOW = {"Regex": "(x+x+)+y|((((a{1,1000}){1,1000}){1,1000}){1,1000})"}
TOKENIZERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a pattern to cut at": lambda c: c["pre_tokenizer"]["pretokenizers"].insert(
        0, {"type": "Split", "pattern": SLOW, "behavior": "Isolated", "invert": False}
    ),
    "a pattern to replace": lambda c: c.update(
        normalizer={"type": "Replace", "pattern": SLOW, "content": ""}
    ),
    "text that grows": lambda c: c.update(
        decoder={"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 10**6}
    ),
    "a template": lambda c: c.update(
        post_processor={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
    ),
    "padding": lambda c: c.update(
        padding={
            "strategy": {"Fixed": 10**9},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "<pad>",
        }
    ),
    "another kind": lambda c: c["model"].update(type="WordLevel"),
    "an unknown kind": lambda c: c["model"].update(type="Evil"),
    "chance": lambda c: c["model"].update(dropout=0.5),
    "another symbol": lambda c: c["added_tokens"].append(
        {**c["added_tokens"][0], "id": 3, "content": "x" * 10**6}
    ),
    "an id twice": lambda c: c["model"]["vocab"].update(zz=5),
    "a hole": lambda c: c["model"]["vocab"].update(zz=5000),
    "symbols exchanged": lambda c: c["model"]["vocab"].update({"<pad>": 2, "</s>": 0}),
    "a piece of ten million": lambda c: c["model"]["vocab"].update(
        {"x" * 10**7: len(c["model"]["vocab"])}
    ),
    "a negative id": lambda c: c["model"]["vocab"].update(zz=-1),
    "half an id": lambda c: c["model"]["vocab"].update(zz=0.5),
    "a huge id": lambda c: c["model"]["vocab"].update(zz=10**4000),
    "a surrogate": lambda c: c["model"]["vocab"].update({"\ud800": len(c["model"]["vocab"])}),
    "merges of nothing": lambda c: c["model"]["merges"].append(["zzz", "y" * 10**6]),
    "merges of numbers": lambda c: c["model"].update(merges=[1, 2]),
    "a list for a vocabulary": lambda c: c["model"].update(vocab=[["a", 1]]),
    "a list for a model": lambda c: c.update(model=[1]),
}


@pytest.mark.parametrize("what", TOKENIZERS)
def test_a_tokenizer_with(world: World, what: str) -> None:
    model = world.copy("model")
    in_json(model, TOKENIZERS[what])
    said = refused("translate", model, stdin=b"x" * 40 + b"\n")
    assert said.startswith(f"{model}/tokenizer.json: ")
    assert "damaged, or not a tokenizer" in said or "not made by regard" in said


RECIPES = {
    "dotted": ".".join("a" * 8000) + " = 1",
    "nested": "x = " + "{" * 8000,
    "endless": "# x\n" * 10**6,
    "a long key": f"[model]\n{'x' * 16_000} = 1",
    "a long number": f"[model]\nlayers = {'9' * 5000}",
}


@pytest.mark.parametrize("what", RECIPES)
def test_a_recipe_that_is(world: World, what: str) -> None:
    model = world.copy("model")
    resealed(model, "recipe.toml", RECIPES[what].encode())
    assert refused_in_a_cell(world, "translate", model).startswith(f"{model}/recipe.toml: ")


PACK = {
    "gz": lambda text: gzip.compress(text),
    "xz": lambda text: lzma.compress(text, preset=0),
    "zst": lambda text: zstandard.compress(text, 1),
}
READERS: dict[str, Callable[[World, Path], list[str | Path]]] = {
    "prepare": lambda w, bomb: ["prepare", "--source", bomb, *w.text[2:], *w.out],
    "score": lambda w, bomb: ["score", bomb, "--reference", bomb],
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", PACK)
def test_an_archive_that_is_all_growth(world: World, kind: str, reader: str) -> None:
    line = b"ab " * (6 if kind == "gz" else 99) + b"\n"  # many lines, or more text
    bomb = world.write(f"bomb.{kind}", PACK[kind](line * (36 * 2**20 // len(line))))
    said = refused_in_a_cell(world, *READERS[reader](world, bomb))
    assert said == f"{bomb}: unpacks to more than 200 times its size: this is not text"


@pytest.mark.parametrize("kind", PACK)
def test_an_archive_of_one_endless_line(world: World, kind: str) -> None:
    bomb = world.write(f"bomb.{kind}", PACK[kind](b"a" * 2**25))
    said = refused_in_a_cell(world, "translate", world.made / "model", "--input", bomb)
    assert said == f"{bomb}:1: this line is longer than 4 MiB: give text with one sentence a line"
