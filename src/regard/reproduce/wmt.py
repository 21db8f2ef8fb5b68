"""The scale `paper`: WMT 2014, English to German (§5.1), from files with known checksums."""

from __future__ import annotations

import html
import re
import tarfile
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

from regard.errors import DataError
from regard.files.regular import checksum
from regard.files.whole import new_file, refusing_write_errors, write_file
from regard.paper import BASE
from regard.recipe import Recipe
from regard.reproduce.scales import TestSet, prepare_folder

_BLOCK = 1 << 20
_SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.DOTALL)


@dataclass(frozen=True)
class Archive:
    """An archive of WMT, which is downloaded as one file."""

    url: str
    size: int
    """The size of the file in bytes."""
    sha256: str
    members: tuple[tuple[str, str, str], ...]
    """For each pair of files in the archive: the English file, the German file, and their purpose
    (train, valid or test)."""

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.url.rpartition("/")[2]


ARCHIVES = (
    Archive(
        "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
        657_632_379,
        "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
        (("training/europarl-v7.de-en.en", "training/europarl-v7.de-en.de", "train"),),
    ),
    Archive(
        "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
        918_311_367,
        "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
        (("commoncrawl.de-en.en", "commoncrawl.de-en.de", "train"),),
    ),
    Archive(
        "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
        80_418_416,
        "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
        (("training/news-commentary-v9.de-en.en", "training/news-commentary-v9.de-en.de",
          "train"),),
    ),
    Archive(
        "http://data.statmt.org/wmt19/translation-task/dev.tgz",
        38_654_961,
        "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7",
        (("dev/newstest2013.en", "dev/newstest2013.de", "valid"),
         ("dev/newstest2014-deen-src.en.sgm", "dev/newstest2014-deen-ref.de.sgm", "test")),
    ),
)  # fmt: skip
"""The archives: 4.5 million pairs to learn from, newstest2013 to validate on, and newstest2014 to
test on."""


@dataclass(frozen=True)
class Wmt:
    """WMT 2014, English to German, with the paper's own recipes, whose training needs GPUs."""

    archives: tuple[Archive, ...] = ARCHIVES
    name: str = "paper"
    text: str = "WMT 2014, English to German"
    language: str = field(default="de", repr=False)
    korean: str = field(default="WMT 2014의 영어-독일어 데이터", repr=False)
    seeds: int = 1

    def fetch(self, out: Path) -> None:
        """Download the files that `out`/wmt14 lacks; check all. Raises the errors of `fetched`."""
        for archive in self.archives:
            fetched(archive, out / "wmt14")

    def prepare(self, out: Path) -> None:
        """Unpack the files and prepare the text; raises errors of `unpack` and `regard.prepare`."""
        folder = out / "corpus"
        unpack(self.archives, out / "wmt14", folder)
        prepare_folder(out, folder, self.base(out))

    def base(self, out: Path) -> Recipe:
        """The paper's base model, validated on all of newstest2013 every 10,000 steps."""
        return BASE.but(validate_sentences=3000, validate_every=10_000)

    def unseen(self, out: Path) -> TestSet:
        """The English sentences of newstest2014, and their German translations."""
        sides = ((out / "corpus" / f"test.{x}").read_text("utf-8") for x in ("en", "de"))
        source, target = (text.split("\n")[:-1] for text in sides)
        return source, target


def fetched(archive: Archive, folder: Path) -> Path:
    """Download an archive, unless the folder has it, and check it; return the path of its file.

    Raises DataError if the file cannot be downloaded, or if its checksum differs; RegardError if
    the folder cannot be made or the file cannot be written.
    """
    path = folder / archive.file
    if not path.exists():
        with refusing_write_errors(path):
            folder.mkdir(parents=True, exist_ok=True)
            with new_file(path) as file:
                file.writelines(_downloaded(archive, folder))
    if checksum(path, follow_links=True) != archive.sha256:
        raise DataError(
            f"is not the file of {archive.url} (its SHA-256 differs): remove it, and start again",
            path,
        )
    return path


def _downloaded(archive: Archive, folder: Path) -> Iterator[bytes]:
    """The content of an archive in blocks; raises DataError if the download is not complete."""
    missing = archive.size
    try:
        with urllib.request.urlopen(archive.url, timeout=60) as answer:
            while block := answer.read(_BLOCK):
                missing -= len(block)
                yield block
        if missing > 0:
            raise ConnectionError(f"{missing:,} of its bytes are missing")
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise DataError(
            f"{archive.url} cannot be downloaded ({reason}): put the file ({archive.size / 1e6:.0f}"
            f" MB) into {folder}, or choose --scale mini, which needs no network"
        ) from None


def unpack(archives: Sequence[Archive], folder: Path, out: Path) -> None:
    """Write the members of the archives to the files {train,valid,test}.{en,de} in `out`.

    Raises DataError if a member is missing, or if an English file and its German translation differ
    in their number of lines; RegardError if a file cannot be written.
    """
    texts: dict[tuple[str, str], list[bytes]] = {}
    for archive in archives:
        path = folder / archive.file
        with tarfile.open(path) as tar:
            for english, german, name in archive.members:
                sides = [_lines(tar, member, path) for member in (english, german)]
                if len(sides[0]) != len(sides[1]):
                    raise DataError(f"{english} and {german} differ in their lines", path)
                for language, lines in zip(("en", "de"), sides, strict=True):
                    texts.setdefault((name, language), []).extend(lines)
    for (name, language), lines in texts.items():
        out.mkdir(parents=True, exist_ok=True)
        write_file(out / f"{name}.{language}", b"".join(line + b"\n" for line in lines))


def _lines(tar: tarfile.TarFile, member: str, path: Path) -> list[bytes]:
    try:
        file = tar.extractfile(member)
    except KeyError:
        file = None
    if file is None:
        raise DataError(f"has no member {member}: it is not the file that it should be", path)
    content = file.read()
    if member.endswith(".sgm"):
        found = _SEGMENT.findall(content.decode("utf-8"))
        return [html.unescape(" ".join(one.split())).encode() for one in found]
    return content.removesuffix(b"\n").split(b"\n")
