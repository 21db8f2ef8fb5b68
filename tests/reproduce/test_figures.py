"""Figures 1 to 5 of the base model of the tables."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from regard.reproduce.figures import CAPTIONS, FIGURES_EXPERIMENT
from regard.reproduce.study import reproduce_tables
from regard.reproduce.tables import Study
from reproduce.tiny import TINY


def test_five_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    study = Study(TINY, tmp_path / "t", (1,))
    [table] = reproduce_tables(study, [FIGURES_EXPERIMENT])
    assert [row[-1] for row in table.rows] == ["done"] * len(CAPTIONS)
    for name in table.pictures:
        assert ElementTree.parse(study.out / name).getroot().tag.endswith("svg")
    page = (study.out / "index.html").read_text("utf-8")
    assert page.count("<img") == len(CAPTIONS)
    assert not (study.out / "figures.svg").exists()
