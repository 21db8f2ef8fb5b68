"""Damaged, foreign and hostile models: each is refused in one sentence, and leaves nothing."""

import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from cli.refusing import contents, refused
from exchange.marian_models import write_marian

Spoil = Callable[[Path], object]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "model"
    write_marian(folder)
    return folder


class Code:
    """An object whose pickle, when it is unpickled, makes a file."""

    def __init__(self, path: Path):
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.open, (self.path, os.O_CREAT | os.O_WRONLY)


def config(**changes: Any) -> Spoil:
    """Change keys of config.json."""
    return lambda folder: _edit(folder / "config.json", changes)


def generation(**changes: Any) -> Spoil:
    return lambda folder: _edit(folder / "generation_config.json", changes)


def _edit(path: Path, changes: dict[str, Any]) -> None:
    content = json.loads(path.read_text())
    content |= changes
    path.write_text(json.dumps(content))


def text(name: str, content: str | bytes) -> Spoil:
    """Replace a file."""
    encoded = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(encoded)


def without(*names: str) -> Spoil:
    return lambda folder: [(folder / name).unlink() for name in names]


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Spoil:
    """Change the tensors."""

    def spoil(folder: Path) -> None:
        path = folder / "model.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)

    return spoil


def cut(name: str, share: float) -> Spoil:
    """Leave the first part of a file."""

    def spoil(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * share)])

    return spoil


def flipped(folder: Path) -> None:
    path = folder / "source.spm"
    content = bytearray(path.read_bytes())
    content[: len(content) // 2] = content[len(content) // 2 :][: len(content) // 2]
    path.write_bytes(bytes(content))


def linked(name: str, target: str) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return spoil


def pickled(save: Callable[[Path, Path], object]) -> Spoil:
    """Write pytorch_model.bin in place of the safetensors file; `save` may use a forbidden path."""

    def spoil(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        save(folder / "pytorch_model.bin", folder.parent / "executed")

    return spoil


def compressed(path: Path, _: Path) -> None:
    """A zip archive of 64 MiB of zeros in 64 KiB."""
    content = io.BytesIO()
    torch.save({"model.shared.weight": torch.zeros(2**24)}, content)
    with (
        zipfile.ZipFile(content) as plain,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))


def wide(path: Path, _: Path) -> None:
    """Tensors that show one number a billion times."""
    torch.save({"model.shared.weight": torch.zeros(1).expand(50_000, 20_000)}, path)


def piped(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


def nan(tensors: dict[str, torch.Tensor]) -> None:
    tensors["model.decoder.layers.0.fc1.weight"][3, 2] = torch.nan


def vocabulary(change: Callable[[dict[str, Any]], object]) -> Spoil:
    def spoil(folder: Path) -> None:
        path = folder / "vocab.json"
        known = json.loads(path.read_text())
        change(known)
        path.write_text(json.dumps(known))

    return spoil


def twice(folder: Path) -> None:
    path = folder / "vocab.json"
    path.write_text(path.read_text().replace("{", '{"<unk>": 3,', 1))


DEEP = "[" * 100_000
FC1 = "model.decoder.layers.0.fc1.weight"
HUGGING_FACE: dict[str, tuple[Spoil, str]] = {
    "no config": (without("config.json"), "config.json: cannot be read"),
    "no weights": (without("model.safetensors"), "has no model.safetensors or pytorch_model.bin"),
    "weights in several files": (
        lambda f: (f / "model.safetensors").rename(f / "model.safetensors.index.json"),
        "in several files",
    ),
    "no source.spm": (without("source.spm"), "has no source.spm"),
    "no target.spm": (without("target.spm"), "has no target.spm"),
    "no vocab.json": (without("vocab.json"), "has no vocab.json"),
    "config is a list": (text("config.json", "[1, 2]"), "not a configuration"),
    "config is empty": (text("config.json", ""), "not JSON"),
    "config is binary": (text("config.json", b"\xff\xfe\x00"), "not UTF-8"),
    "config is nested": (text("config.json", DEEP), "config.json"),
    "config is long": (text("config.json", " " * 2**19), "more than"),
    "config is a pipe": (piped, "not a regular file"),
    "config is a loop": (linked("config.json", "config.json"), "symbolic link"),
    "weights are a link": (linked("model.safetensors", "/etc/passwd"), "symbolic link"),
    "T5": (config(model_type="t5", architectures=["T5ForConditionalGeneration"]), "'t5'"),
    "BART": (config(model_type="bart"), "'bart'"),
    "GPT": (config(model_type="gpt2", is_encoder_decoder=False), "'gpt2'"),
    "M2M100": (config(model_type="m2m_100"), "'m2m_100'"),
    "no kind": (config(model_type=None), "MarianMTModel"),
    "pre-norm": (config(normalize_before=True), "normalize_before is True"),
    "normalised embedding": (config(normalize_embedding=True), "normalize_embedding"),
    "unknown activation": (config(activation_function="gelu_new"), "'gelu_new'"),
    "activation is a number": (config(activation_function=3), "activation_function is 3"),
    "absurd width": (config(d_model=2**40), "d_model"),
    "absurd layers": (config(encoder_layers=10**9), "layers"),
    "absurd vocabulary": (config(vocab_size=10**12), "vocab_size"),
    "larger vocabulary": (config(vocab_size=900_000, decoder_vocab_size=900_000), "is ["),
    "no layers": (config(decoder_layers=0), "decoder_layers is 0"),
    "negative width": (config(encoder_ffn_dim=-3), "encoder_ffn_dim is -3"),
    "odd width": (config(d_model=17, encoder_attention_heads=1, decoder_attention_heads=1), "2"),
    "heads do not divide": (config(encoder_attention_heads=3), "not a multiple"),
    "width is a text": (config(d_model="16"), "d_model is '16'"),
    "width is true": (config(d_model=True), "d_model is True"),
    "more layers than weights": (config(encoder_layers=2), "has no weight model.encoder.layers.1"),
    "other ffn": (config(encoder_ffn_dim=21), "fc1.weight is [20, 16]"),
    "pad beyond": (generation(pad_token_id=10**6), "pad_token_id is 1000000"),
    "eos beyond": (generation(eos_token_id=10**6), "eos_token_id is 1000000"),
    "start is negative": (generation(decoder_start_token_id=-1), "decoder_start_token_id is -1"),
    "two ends": (generation(eos_token_id=[0, 4]), "eos_token_id is [0, 4]"),
    "end is forbidden": (
        generation(bad_words_ids=[[0]]),
        "bad_words_ids is [[0]]: it must be without",
    ),
    "end is suppressed": (
        generation(suppress_tokens=[0]),
        "suppress_tokens is [0]: it must be without",
    ),
    "a word is forbidden": (generation(bad_words_ids=[[5]]), "never writes the id 5"),
    "an id beyond is forbidden": (
        generation(bad_words_ids=[[10**6]]),
        "bad_words_ids is [[10",
    ),
    "an id beyond is suppressed": (
        generation(suppress_tokens=[10**6]),
        "suppress_tokens is [1000",
    ),
    "a word is suppressed": (generation(suppress_tokens="a"), "suppress_tokens is 'a'"),
    "two words are forbidden": (generation(bad_words_ids=[[5, 6]]), "one id each"),
    "n-grams": (generation(no_repeat_ngram_size=3), "no_repeat_ngram_size is 3"),
    "samples": (generation(do_sample=True), "do_sample is True"),
    "forces": (generation(force_words_ids=[[5]]), "force_words_ids is [[5]]"),
    "stops": (generation(stop_strings=["."]), "stop_strings is ['.']"),
    "stops early": (generation(early_stopping=True), "early_stopping is True"),
    "repetition": (generation(repetition_penalty=1.2), "repetition_penalty is 1.2"),
    "older settings": (
        lambda f: (config(min_new_tokens=5)(f), (f / "generation_config.json").unlink()),
        "config.json: min_new_tokens is 5",
    ),
    "negative penalty": (generation(length_penalty=-1.0), "length_penalty is -1.0"),
    "penalty is NaN": (text("generation_config.json", '{"length_penalty": NaN}'), "nan"),
    "weights end early": (cut("model.safetensors", 0.6), "damaged"),
    "weights are empty": (text("model.safetensors", b""), "damaged"),
    "header of exabytes": (text("model.safetensors", b"\xff" * 64), "damaged"),
    "weights are text": (text("model.safetensors", "hello there, friend"), "damaged"),
    "NaN": (weights(nan), "NaN or infinite"),
    "infinite": (weights(lambda w: w[FC1].fill_(torch.inf)), "NaN or infinite"),
    "whole numbers": (weights(lambda w: w.update({FC1: w[FC1].long()})), "not real numbers"),
    "one weight missing": (weights(lambda w: w.pop(FC1)), f"has no weight {FC1}"),
    "a weight too many": (weights(lambda w: w.update(extra=torch.ones(2))), "has extra"),
    "transposed": (weights(lambda w: w.update({FC1: w[FC1].t().contiguous()})), "[16, 20]"),
    "fairseq": (
        weights(
            lambda w: (
                w.clear(),
                w.update({"encoder.embed_positions._float_tensor": torch.ones(1)}),
            )
        ),
        "has no weight",
    ),
    "spm ends early": (cut("source.spm", 0.3), "source.spm"),
    "spm is another file": (flipped, "source.spm"),
    "spm is text": (text("target.spm", "not a model"), "target.spm"),
    "vocabulary is a list": (text("vocab.json", '["a", "b"]'), "vocab"),
    "vocabulary is nested": (text("vocab.json", DEEP), "vocab.json"),
    "a piece twice": (twice, "vocab.json"),
    "an id twice": (vocabulary(lambda known: known.update({"<unk>": 4})), "same id"),
    "an id beyond": (vocabulary(lambda known: known.update({"▁more": 5000})), "5,000"),
    "an id is negative": (vocabulary(lambda known: known.update({"▁more": -1})), "-1"),
    "an id is a text": (vocabulary(lambda known: known.update({"▁more": "7"})), "'7'"),
    "no unknown piece": (vocabulary(lambda known: known.pop("<unk>")), "<unk>"),
    "pickled code": (pickled(lambda path, bad: torch.save(Code(bad), path)), "run as code"),
    "code among weights": (
        pickled(lambda path, bad: torch.save({"model.shared.weight": Code(bad)}, path)),
        "run as code",
    ),
    "bare pickle": (
        pickled(lambda path, bad: path.write_bytes(pickle.dumps(Code(bad)))),
        "",
    ),
    "pickle of a list": (pickled(lambda path, _: torch.save([1, 2], path)), "not a state dict"),
    "pickle of texts": (pickled(lambda path, _: torch.save({"a": "b"}, path)), "no tensor"),
    "compressed": (pickled(compressed), "compressed"),
    "numbers shown often": (pickled(wide), "more numbers than the file has"),
    "pickle ends early": (
        pickled(lambda path, _: (torch.save({"a": torch.ones(99)}, path), os.truncate(path, 400))),
        "damaged",
    ),
    "sparse": (
        pickled(lambda path, _: torch.save({"a": torch.ones(3).to_sparse()}, path)),
        "",
    ),
}


@pytest.mark.parametrize(("spoil", "part"), HUGGING_FACE.values(), ids=HUGGING_FACE)
def test_a_directory_of_hugging_face_is_refused(
    tmp_path: Path, good: Path, spoil: Spoil, part: str
) -> None:
    shutil.copytree(good, tmp_path / "theirs")
    spoil(tmp_path / "theirs")
    pipes = [path for path in (tmp_path / "theirs").iterdir() if path.is_fifo()]
    before = {} if pipes else contents(tmp_path)
    said = refused("import", "hf", tmp_path / "theirs", "--out", tmp_path / "out" / "ours")
    assert part in said, said
    assert not (tmp_path / "executed").exists()
    assert pipes or contents(tmp_path) == before
