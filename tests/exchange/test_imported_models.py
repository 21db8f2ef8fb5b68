"""An imported model does all that a model of regard does, with two vocabularies too."""

from pathlib import Path

import pytest
import torch

from cli.refusing import Result, regard
from exchange.brief import make_brief
from exchange.marian_models import lines, write_marian
from regard.exchange.certificate import Certificate
from regard.run.model_directory import open_model
from regard.translation import load

SOURCES = lines("source", 5, seed=41)
SMALL = [
    part
    for field in (
        *("training.steps=3", "training.save_every=1", "training.save_minutes=0.0"),
        *("training.validate_sentences=2", "training.keep=2", "training.average=2"),
        *("training.precision=fp32", "data.source_tokens=300", "data.target_tokens=300"),
    )
    for part in ("--set", field)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an imported model, and texts."""
    folder = tmp_path_factory.mktemp("imported")
    write_marian(folder / "theirs", separate=True, bias=True, ends=2.0, encoder_layers=2, pad=2)
    with pytest.MonkeyPatch.context() as patch:
        make_brief(patch)
        done("import", "hf", folder / "theirs", "--out", folder / "model")
    for side, seed in (("source", 41), ("target", 42)):
        text = "".join(f"{line}\n" for line in lines(side, 40, seed))
        (folder / side).write_text(text, "utf-8")
    return folder


def done(*argv: str | Path, stdin: bytes = b"") -> Result:
    result = regard(*argv, stdin=stdin)
    assert result.status == 0, result
    return result


def test_it_translates_exactly_and_in_8_bits(folder: Path) -> None:
    text = "".join(f"{line}\n" for line in SOURCES).encode()
    plain = done("translate", folder / "model", "--no-retry", stdin=text).stdout
    exact = done("translate", folder / "model", "--no-retry", "--exact", stdin=text).stdout
    assert plain == exact
    assert load(folder / "model").translate(SOURCES) == plain.splitlines()
    eight = done("translate", folder / "model", "--precision", "int8", stdin=text).stdout
    assert len(eight.splitlines()) == len(SOURCES)
    aligned = done("translate", folder / "model", "--alignments", stdin=text).stdout
    assert all("|||" in line for line in aligned.splitlines())


def test_it_is_scored_looked_at_and_compared(folder: Path) -> None:
    model = folder / "model"
    scored = done("score", folder / "target", "--model", model, "--source", folder / "source")
    assert len(scored.stdout.splitlines()) == 40
    done("look", model, SOURCES[0], "--html", folder / "look.html")
    assert "</html>" in (folder / "look.html").read_text("utf-8")
    done("look", model, "--figure", "1", "--out", folder / "figure.svg")
    compared = done("paper-diff", model).stdout
    assert 'model.positions = "halves"' in compared


def test_it_is_trained_further(folder: Path) -> None:
    run = folder / "run"
    texts = "--source", folder / "source", "--target", folder / "target"
    done("train", "--from", folder / "model", *texts, "--out", run, *SMALL)
    before, after = open_model(folder / "model"), open_model(run)
    assert after.recipe.model == before.recipe.model
    assert after.tokenizer.fingerprint == before.tokenizer.fingerprint
    pairs = zip(before.network.parameters(), after.network.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in pairs)
    told = done("info", run).stdout
    assert "validation   step 3" in told
    assert "2 checkpoints" in told


def test_tuned_it_keeps_its_certificate(folder: Path) -> None:
    done("tune", folder / "model", "--source", folder / "source", "--reference", folder / "target")
    certificate = Certificate.read(folder / "model")
    assert certificate and "certificate.json" in open_model(folder / "model").manifest["files"]
    assert (
        f"differ by at most {certificate.difference:.2g}" in done("info", folder / "model").stdout
    )


@pytest.mark.parametrize("format", ["onnx", "hf"])
def test_info_of_an_exported_directory(folder: Path, format: str) -> None:  # noqa: A002
    if format == "onnx":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    out = folder / f"exported-{format}"
    done("export", format, folder / "model", "--out", out)
    told = done("info", out).stdout
    assert f"those of {format}" in told
    assert "imported     from theirs (hf)" in told
    assert f"regard to {format}" in told


def test_info_of_what_is_no_model(tmp_path: Path, folder: Path) -> None:
    result = regard("info", tmp_path / "nothing")
    assert result.status == 2
    (folder / "model" / "certificate.json").write_text("{}")
    assert "checksum" in regard("info", folder / "model").stderr
