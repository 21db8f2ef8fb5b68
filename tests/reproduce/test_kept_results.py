"""The figures in experiments/tables and docs/results.md are those of the kept files."""

import json
import re
from pathlib import Path
from statistics import fmean, stdev

import pytest

from regard.paper import TABLE_3
from regard.reproduce.layers import LAYERS
from regard.reproduce.sentences import PAPER_SENTENCES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments" / "tables"
TRIALS = ("table3-short.json", "table3-steep.json")


def kept(name: str) -> dict:
    """The content of a kept file."""
    content: dict = json.loads((FOLDER / name).read_text("utf-8"))
    return content


def test_the_page_has_the_kept_figures() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    trials, last = [kept(name)["rows"] for name in TRIALS], kept("table3.json")
    seeds = [str(seed) for seed in last["seeds"]]
    for row in TABLE_3:
        of_row = last["rows"][row]
        numbers = [one[row]["seeds"]["1"] for one in trials]
        numbers += [of_row["seeds"].get(seed) for seed in seeds]
        cells = [f"{one['bleu']:.1f}" if one else "–" for one in numbers]
        perplexity = f"{of_row['seeds']['1']['perplexity']:.2f}"
        assert f"| {row} | {of_row['paper']['bleu']} | {' | '.join(cells)} | {perplexity} |" in page
    whole = sum(all(one["seeds"].get(seed) for seed in seeds) for one in last["rows"].values())
    assert f"{whole} of the 20 rows" in page


def test_the_page_has_the_kept_figures_of_each_warm_up() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    for run in kept("small-warmup.json")["runs"]:
        settings = f"| {run['row']} | {run['warmup_steps']:,} | {run['rate']:g} |"
        assert f"{settings} {run['perplexity']:.2f} | {run['bleu']:.1f} |" in page


def test_the_page_has_the_kept_figures_of_other_rates_of_base() -> None:
    page = " ".join((FOLDER / "README.md").read_text("utf-8").split())
    twice, half = kept("small-base-rates.json")["runs"]
    assert (twice["rate"], half["rate"]) == (2, 0.5)
    bleu = f"BLEU of {twice['bleu']:.1f}, with half of it {half['bleu']:.1f}"
    assert f"with twice the rate it had a {bleu}" in page
    assert f"{twice['unseen_bleu']:.1f} and {half['unseen_bleu']:.1f} on unseen text" in page


def test_the_page_has_the_kept_figures_of_other_rates_of_base_at_scale_mini() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    for name, run in zip(("2", "1/2"), kept("mini-base-rates.json")["runs"], strict=True):
        assert f"| rate {name} | {run['bleu']:.1f} | {run['unseen_bleu']:.1f} |" in page


def test_the_page_has_the_kept_figures_of_unseen_text() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    for row, seeds in kept("table2.json")["rows"].items():
        unseen = [one["unseen"]["bleu_13a"] for one in seeds.values()]
        assert (
            f"| {row} | {' | '.join(f'{bleu:.1f}' for bleu in [*unseen, fmean(unseen)])} |" in page
        )


@pytest.mark.parametrize("language", ["", ".ko"])
@pytest.mark.parametrize(
    ("page", "table"), [("results", "table3"), ("results-small", "small-table3")]
)
def test_the_report_has_the_kept_figures(page: str, table: str, language: str) -> None:
    report = (ROOT / "docs" / f"{page}{language}.md").read_text("utf-8")
    for one in PAPER_SENTENCES:
        assert f"| {one.korean if language else one.english} |" in report
    for row, one in kept(f"{table}.json")["rows"].items():
        [line] = [line for line in report.splitlines() if line.startswith(f"| {row} |")]
        for numbers in filter(None, one["seeds"].values()):
            assert f"{numbers['bleu']:.2f}" in line


@pytest.mark.parametrize("language", ["", ".ko"])
@pytest.mark.parametrize(
    ("page", "table"), [("results", "table2"), ("results-small", "small-table2")]
)
def test_the_report_has_the_kept_figures_of_each_family(
    page: str, table: str, language: str
) -> None:
    report = (ROOT / "docs" / f"{page}{language}.md").read_text("utf-8")
    content = kept(f"{table}.json")
    for row, seeds in content["rows"].items():
        [line] = [line for line in report.splitlines() if f" | {row} | " in line]
        assert line.endswith(" | done |")
        for one in seeds.values():
            assert f"| {one['unseen']['bleu_13a']:.2f} |" in line
    assert f"| {content['ensemble']['unseen']['bleu_13a']:.2f} |" in report


@pytest.mark.parametrize("language", ["", ".ko"])
def test_the_report_has_the_kept_figures_of_each_parser(language: str) -> None:
    report = (ROOT / "docs" / f"results{language}.md").read_text("utf-8")
    for seeds in kept("table4.json")["rows"].values():
        figures = [f"{one['f1']:.1f}" for one in seeds.values()]
        assert f" | {' | '.join(figures)} | " in report


def test_the_page_has_the_kept_figures_of_each_recipe_that_was_tried() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    for row, seeds in kept("small-table2.json")["rows"].items():
        cells = [f"{tried['bleu']:.1f}" for tried in seeds["1"]["tried"].values()]
        cells += ["–"] * (5 - len(cells))
        unseen = [one["unseen"] and one["unseen"]["bleu_13a"] for one in seeds.values()]
        cells += ["–" if bleu is None else f"{bleu:.1f}" for bleu in unseen]
        found = [bleu for bleu in unseen if bleu is not None]
        spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
        trained = [one["trained"] for one in seeds.values() if one["trained"]]
        cells.append(f"{fmean(found):.1f}{spread}")
        cells.append(f"{fmean(one['perplexity'] for one in trained):.2f}")
        cells.append(f"{fmean(one['counted_flop'] for one in trained) / 1e13:.1f}")
        assert f"| {row} | {' | '.join(cells)} |" in page


def test_the_page_has_the_kept_figures_of_scale_small() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    rows = kept("small-table3.json")["rows"]
    base, printed = rows["base"]["seeds"], rows["base"]["paper"]["bleu"]
    for row, one in rows.items():
        found = {seed: numbers for seed, numbers in one["seeds"].items() if numbers}
        paper = one["paper"]["bleu"]
        cells = [f"{paper}", f"{paper - printed:+.1f}"]
        cells += [f"{found[seed]['bleu']:.1f}" if seed in found else "–" for seed in "123"]
        cells.append(f"{fmean(numbers['bleu'] for numbers in found.values()):.1f}")
        less = fmean(found[seed]["bleu"] - base[seed]["bleu"] for seed in found)
        cells.append(f"{less:+.1f}")
        cells.append(f"{fmean(numbers['perplexity'] for numbers in found.values()):.2f}")
        cells.append(f"{fmean(numbers['accuracy'] for numbers in found.values()):.1f}")
        assert f"| {row} | {' | '.join(cells)} |" in page


def test_the_kept_layers_have_the_papers_exponents() -> None:
    layers = kept("table1.json")["layers"]
    assert layers.keys() == LAYERS.keys()
    powers = {"self-attention": (2, 1), "with projections": (2, 1), "restricted": (1, 1)}
    for layer, one in layers.items():
        n, d = powers.get(layer, (1, 2))
        found = one["exponents"]
        assert found["operations, n"] == pytest.approx(n, abs=0.12)
        assert found["operations, d"] == pytest.approx(d, abs=0.12)
        assert found["chain, n"] == pytest.approx(float(layer == "recurrent"), abs=0.05)
        if layer != "with projections":  # the paper does not count them
            assert found["time, n"] == pytest.approx(n, abs=0.2)
            assert found["time, d"] == pytest.approx(d, abs=0.2)
        paths = {key: value for key, value in one["measured"].items() if key.startswith("path_")}
        assert paths == {f"path_{size}": value for size, value in one["expected_path"].items()}
        assert all(re.fullmatch(r"path_\d+", key) for key in paths)
