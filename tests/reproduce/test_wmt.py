"""Scale paper: archives are fetched, checked and unpacked; without them one sentence says so."""

import hashlib
import io
import tarfile
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from regard.errors import DataError, RegardError
from regard.paper import BASE
from regard.reproduce.prepared import prepare_text_once
from regard.reproduce.report import write_report
from regard.reproduce.scales import Mini
from regard.reproduce.table2 import TABLE_2_EXPERIMENT
from regard.reproduce.table3 import TABLE_3_EXPERIMENT
from regard.reproduce.table4 import TABLE_4_EXPERIMENT
from regard.reproduce.tables import Study, write_tables
from regard.reproduce.wmt import ARCHIVES, Archive, Wmt, fetched, unpack

SGM = '<doc><seg id="1"> A dog &amp; a cat. </seg>\n<seg id="2">Two\nlines.</seg></doc>'


def archive(folder: Path, name: str, content: dict[str, str], text: str = "train") -> Archive:
    """An archive with two members, at a URL that needs no network."""
    path = folder / name
    with tarfile.open(path, "w:gz") as tar:
        for member, lines in content.items():
            about = tarfile.TarInfo(member)
            about.size = len(lines.encode())
            tar.addfile(about, io.BytesIO(lines.encode()))
    data = path.read_bytes()
    english, german = content
    checksum = hashlib.sha256(data).hexdigest()
    return Archive(path.as_uri(), len(data), checksum, ((english, german, text),))


def test_texts_are_joined(tmp_path: Path) -> None:
    parts = [
        archive(tmp_path, "a.tgz", {"x/a.en": "one\ntwo\n", "x/a.de": "eins\nzwei\n"}),
        archive(tmp_path, "b.tgz", {"b.en": "three\n", "b.de": "drei\n"}),
        archive(tmp_path, "c.tgz", {"c-src.en.sgm": SGM, "c-ref.de.sgm": SGM}, "test"),
    ]
    for part in parts:
        assert fetched(part, tmp_path / "wmt14") == tmp_path / "wmt14" / part.file
    unpack(parts, tmp_path / "wmt14", tmp_path / "corpus")
    assert (tmp_path / "corpus/train.en").read_text() == "one\ntwo\nthree\n"
    assert (tmp_path / "corpus/train.de").read_text() == "eins\nzwei\ndrei\n"
    sources, references = Wmt().unseen(tmp_path)
    assert sources == references == ["A dog & a cat.", "Two lines."]


def test_another_file_is_refused(tmp_path: Path) -> None:
    part = archive(tmp_path, "a.tgz", {"a.en": "one\n", "a.de": "eins\n"})
    path = fetched(part, tmp_path / "wmt14")
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(DataError, match=r"a\.tgz: is not the file of .*SHA-256.*remove it"):
        fetched(part, tmp_path / "wmt14")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    part = archive(tmp_path, "a.tgz", {"a.en": "one\n", "a.de": "eins\n"})
    (tmp_path / "file").write_text("")
    with pytest.raises(RegardError, match=r"file/a\.tgz: cannot write: "):
        fetched(part, tmp_path / "file")


def test_without_network_a_sentence_says_what_to_do(tmp_path: Path) -> None:
    part = Archive((tmp_path / "missing.tgz").as_uri(), 12_000_000, "", ())
    with pytest.raises(DataError, match=r"cannot be downloaded.*12 MB\) into .*wmt14.*mini"):
        prepare_text_once(Study(Wmt((part,)), tmp_path, (1,)))
    assert list((tmp_path / "wmt14").iterdir()) == []
    assert not (tmp_path / "scale.txt").exists()  # mini may be chosen


def test_a_download_that_breaks_off_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reset(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise ConnectionResetError("Connection reset by peer")

    part = archive(tmp_path, "a.tgz", {"a.en": "one\n", "a.de": "eins\n"})
    with pytest.raises(DataError, match=r"cannot be downloaded \(7 of its bytes are missing\)"):
        fetched(replace(part, size=part.size + 7), tmp_path / "wmt14")
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: Reset())
    with pytest.raises(DataError, match=r"cannot be downloaded \(Connection reset by peer\)"):
        fetched(part, tmp_path / "wmt14")
    assert list((tmp_path / "wmt14").iterdir()) == []


def test_texts_of_other_lengths_or_names_are_refused(tmp_path: Path) -> None:
    odd = archive(tmp_path, "a.tgz", {"a.en": "one\n", "a.de": "eins\nzwei\n"})
    with pytest.raises(DataError, match=r"a\.en and a\.de differ in their lines"):
        unpack([odd], tmp_path, tmp_path / "corpus")
    lacking = Archive(odd.url, odd.size, odd.sha256, (("b.en", "b.de", "train"),))
    with pytest.raises(DataError, match=r"has no member b\.en"):
        unpack([lacking], tmp_path, tmp_path / "corpus")


def test_nothing_is_called_smaller_than_the_papers(tmp_path: Path) -> None:
    experiments = (TABLE_2_EXPERIMENT, TABLE_3_EXPERIMENT, TABLE_4_EXPERIMENT)
    told = {}
    for scale in (Mini(), Wmt()):
        out = tmp_path / scale.name
        tables = write_tables(Study(scale, out, (1,)), experiments)
        named = dict(zip([one.name for one in experiments], tables, strict=True))
        for page in ("report.md", "report.ko.md"):
            write_report(out / page, scale, (1,), named)
        pages = ("index.html", "report.md", "report.ko.md")
        told[scale.name] = " ".join((out / page).read_text("utf-8") for page in pages)
    told = {name: " ".join(text.split()) for name, text in told.items()}
    for words in (
        "of larger models",
        "far smaller than the paper's",
        "논문의 모델보다 훨씬 작으므로",
        "not with the printed figures",
        "reinforcement learning, and smaller",
    ):
        assert words in told["mini"]
        assert words not in told["paper"]
    assert "the average of the last 5 checkpoints (big: 20), beam 4" in told["paper"]
    assert "| big | d_model 1024, d_ff 4096, h 16, P_drop 0.3, steps 300000 |" in told["paper"]


def test_the_files_of_the_paper() -> None:
    assert {len(one.sha256) for one in ARCHIVES} == {64}
    assert {text for one in ARCHIVES for *_, text in one.members} == {"train", "valid", "test"}
    base = Wmt().base(Path())
    assert base.model == BASE.model
    assert base.training.steps == BASE.training.steps
