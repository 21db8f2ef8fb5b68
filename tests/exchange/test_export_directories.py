"""The directory of an export: made whole or not at all, and read back."""

import json
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cli.refusing import refused, running
from engines.exported_models import SHAPES, untrained
from exchange.brief import brief_certificates  # noqa: F401
from regard.errors import ModelError
from regard.exchange.exporting import write_export
from regard.exchange.foreign import NotRunError
from regard.exchange.from_hf import read_hf
from regard.exchange.from_own_hf import is_own
from regard.exchange.hf_text import OURS

pytestmark = pytest.mark.usefixtures("brief_certificates")


def test_a_signal_leaves_no_unfinished_export(tmp_path: Path) -> None:
    untrained(tmp_path / "model", SHAPES["paper"])
    before = set(tmp_path.iterdir())
    with running("export", "onnx", tmp_path / "model", "--out", tmp_path / "x") as child:
        while not any(tmp_path.glob(".x.*")):
            assert child.is_running()
            time.sleep(0.005)
        child.send_signal(signal.SIGTERM)
        assert child.result(60).status == 143
    assert set(tmp_path.iterdir()) == before


def test_the_current_directory_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untrained(tmp_path / "model", SHAPES["paper"])
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for out in (Path(), tmp_path / "here"):
        said = refused("export", "onnx", tmp_path / "model", "--out", out)
        assert said == f"{out}: is the current directory: name a folder in it"


def test_without_two_files_of_the_export_it_is_not_read_back(tmp_path: Path) -> None:
    untrained(tmp_path / "model", SHAPES["paper"])
    write_export("hf", tmp_path / "model", tmp_path / "hf")
    files = {name: (tmp_path / "hf" / name).read_bytes() for name in ("recipe.toml", OURS)}
    for name in files:
        (tmp_path / "hf" / name).unlink()
    with pytest.raises(ModelError, match=f"copy recipe.toml and {OURS} from the directory"):
        read_hf(tmp_path / "hf")
    for name, content in files.items():
        (tmp_path / "hf" / name).write_bytes(content)
    assert is_own(tmp_path / "hf")
    read_hf(tmp_path / "hf")


def test_code_in_a_directory_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, `transformers` would ask whether to run it, and an answer may be in a pipe."""
    pytest.importorskip("transformers")
    untrained(tmp_path / "model", SHAPES["paper"])
    write_export("hf", tmp_path / "model", tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text("utf-8"))
    theirs = config | {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config"}}
    (tmp_path / "hf" / "config.json").write_text(json.dumps(theirs), "utf-8")
    (tmp_path / "hf" / "tokenizer_config.json").unlink()
    ran = f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\nclass Config: ...\n"
    (tmp_path / "hf" / "evil.py").write_text(ran, "utf-8")
    monkeypatch.setattr("builtins.input", lambda _: "y")
    with suppress(NotRunError):  # another version may refuse the directory
        read_hf(tmp_path / "hf").side()
    assert not (tmp_path / "ran").exists()
