"""`regard export`, and `--engine` of translate and serve, as users run them."""

import json
from pathlib import Path

import pytest

from cli.refusing import refused, regard
from cli.test_serve_command import asked, serving
from regard.cli.export import export
from regard.exchange.certificate import Certificate
from regard.files.manifest import unseal


def run(*argv: str | Path, text: str = "") -> str:
    result = regard(*argv, stdin=text.encode())
    assert result.status == 0, result
    return result.stdout


@pytest.fixture(scope="module")
def exported(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    said = run("export", "onnx", made / "model", "--out", folder / "onnx")
    assert "100% are cut alike" in said
    return folder / "onnx"


def test_a_sealed_directory_with_a_certificate(exported: Path) -> None:
    manifest = unseal(exported)
    assert {
        "encoder.onnx",
        "decoder.onnx",
        "recipe.toml",
        "tokenizer.json",
        "certificate.json",
    } <= (manifest["files"].keys())
    certificate = Certificate.read(exported)
    assert certificate is not None
    assert certificate.conversion == "regard to onnx"
    assert certificate.difference < 1e-4 * certificate.range


def test_translate_and_serve_by_an_engine(made: Path, exported: Path) -> None:
    text = "the dog sees the cat\n\nthe bird\n"
    ours = run("translate", made / "model", "--json", text=text)
    theirs = run("translate", exported, "--engine", "onnx", "--json", text=text)
    found, by_engine = ([json.loads(line) for line in out.splitlines()] for out in (ours, theirs))
    for one, other in zip(found, by_engine, strict=True):
        assert one["translations"][0]["text"] == other["translations"][0]["text"]
        assert one["flaws"] == other["flaws"]
    with serving(f"{exported}=en-de", "--engine", "onnx") as (_, address):
        assert asked(address, "the bird") == found[2]["translations"][0]["text"].strip()


def test_the_help_exports_as_it_says() -> None:
    assert (export.__doc__ or "").count("--text in.") == 2  # one text is refused


def test_what_an_engine_does_not_do_is_refused(made: Path, exported: Path, tmp_path: Path) -> None:
    ct2, model = tmp_path / "ct2", made / "model"
    told = "--engine needs --beam 1: export with --set search.finish=beam for a wider beam\n"
    assert regard("export", "ctranslate2", model, "--out", ct2).stderr == told
    engine = ["--engine", "onnx"]
    given = ["translate", str(exported)]
    assert "or translate or serve it with --engine onnx" in refused("look", str(exported), "a")
    assert "not exported for onnx" in refused("translate", str(made / "model"), *engine)
    assert "--precision bf16" in refused(*given, *engine, "--precision", "bf16")
    assert "--exact" in refused(*given, *engine, "--exact")
    assert "several models" in refused(*given, str(exported), *engine)
    assert "unknown engine tpu" in refused(*given, "--engine", "tpu")
    assert "finish=beam, or give --beam 1" in (
        refused("translate", ct2, "--engine", "ctranslate2", stdin=b"the dog\n")
    )
    assert "unknown format tf" in refused("export", "tf", str(made / "model"), "--out", "x")
