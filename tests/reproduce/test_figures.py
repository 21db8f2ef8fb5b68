"""Figures 1 to 5 of the base model of the tables."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from regard.reproduce.figures import CAPTIONS, FIGURES_EXPERIMENT, draw_figures
from regard.reproduce.making import reproduce_tables
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


def test_a_base_that_diverged_is_not_drawn(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    assert draw_figures(tmp_path, 1) is None
    (tmp_path / "parts/base-1.json").write_text('{"settings": "", "numbers": {"diverged": 1.0}}')
    drawn = draw_figures(tmp_path, 1)
    assert drawn == {"figures": 0}
    table = FIGURES_EXPERIMENT.table(Study(TINY, tmp_path, (1,)), {("figures", 1): drawn})
    assert {row[-1] for row in table.rows} == {"not made: base diverged"}
    assert not table.pictures
