"""What the tests of refusals spoil: a corpus, prepared data, a run and a model, made once."""

import shutil
from pathlib import Path

import pytest

from cli.refusing import World, regard


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 75 pairs, prepared; a run of four steps, with checkpoints 2, 3 and 4; a model."""
    folder = tmp_path_factory.mktemp("made")
    nouns = {"dog": "Hund", "cat": "Katze", "house": "Haus", "tree": "Baum", "bird": "Vogel"}
    verbs = {"sees": "sieht", "likes": "mag", "hears": "hört"}
    triples = [(one, verb, other) for one in nouns for verb in verbs for other in nouns]
    english = [f"the {one} {verb} the {other}" for one, verb, other in triples]
    german = [f"{nouns[one]} {verbs[verb]} {nouns[other]}" for one, verb, other in triples]
    (folder / "source.en").write_text("".join(f"{line}\n" for line in english), "utf-8")
    (folder / "target.de").write_text("".join(f"{line}\n" for line in german), "utf-8")
    world = World(folder, folder)
    for argv in (
        ["prepare", "-q", *world.text, "--out", folder / "data", *world.recipe],
        ["train", "-q", "--data", folder / "data", "--out", folder / "run", *world.recipe],
        ["average", folder / "run", "--last", "2", "--out", folder / "model"],
    ):
        result = regard(*argv)
        assert result.status == 0, result
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path) -> World:
    for name in ("source.en", "target.de"):
        shutil.copy(made / name, tmp_path)
    return World(tmp_path, made)
