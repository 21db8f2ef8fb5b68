"""The figures in experiments/tables are those of its files."""

import json
import re
from pathlib import Path

import pytest

from regard.paper import TABLE_3
from regard.reproduce.layers import LAYERS

FOLDER = Path(__file__).parents[2] / "experiments" / "tables"
FILES = ("table3-short.json", "table3-steep.json", "table3.json")


def test_the_page_has_the_kept_figures() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    kept = [json.loads((FOLDER / name).read_text("utf-8"))["rows"] for name in FILES]
    for row in TABLE_3:
        numbers = [one[row]["seeds"]["1"] for one in kept]
        cells = [f"{one['bleu']:.1f}" if one else "–" for one in numbers]
        last = f"{numbers[-1]['perplexity']:.2f}" if numbers[-1] else "–"
        printed = kept[-1][row]["paper"]["bleu"]
        assert f"| {row} | {printed} | {' | '.join(cells)} | {last} |" in page
    assert f"has {sum(kept[-1][r]['seeds']['1'] is not None for r in TABLE_3)} of its 20" in page


def test_the_kept_layers_have_the_papers_exponents() -> None:
    kept = json.loads((FOLDER / "table1.json").read_text("utf-8"))["layers"]
    assert kept.keys() == LAYERS.keys()
    powers = {"self-attention": (2, 1), "with projections": (2, 1), "restricted": (1, 1)}
    for layer, one in kept.items():
        n, d = powers.get(layer, (1, 2))
        found = one["exponents"]
        assert found["operations, n"] == pytest.approx(n, abs=0.12)
        assert found["operations, d"] == pytest.approx(d, abs=0.12)
        assert found["chain, n"] == pytest.approx(float(layer == "recurrent"), abs=0.05)
        paths = {key: value for key, value in one["measured"].items() if key.startswith("path_")}
        assert paths == {f"path_{size}": value for size, value in one["expected_path"].items()}
        assert all(re.fullmatch(r"path_\d+", key) for key in paths)
