"""Plot the records that were kept: benchmarks/results/*.json to docs/performance/*.svg.

    .venv/bin/python benchmarks/plots.py

It uses the newest record of each benchmark. Bars are medians, and their whiskers are the least and
the greatest round. The same records give the same files.
"""

import argparse
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
OURS, PEERS = "#0b6e4f", "#9aa5b1"
WORK = {"train": "#0b6e4f", "encode": "#c8553d", "decode": "#3d5a80"}

matplotlib.use("svg")
matplotlib.rcParams |= {
    "svg.hashsalt": "regard",  # else the names inside a file change with each run
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def newest(results: Path) -> dict[str, dict[str, Any]]:
    """The newest record of each benchmark, by the file's name without its date."""
    return {
        found[1]: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(results.glob("*.json"))
        if (found := re.fullmatch(r"\d{4}-\d\d-\d\d-(.+)\.json", path.name))
    }


def bars(title: str, unit: str, spreads: Mapping[str, Mapping[str, float]]) -> Figure:
    """A chart with one bar for each name, the first on top."""
    figure = Figure(figsize=(7, 0.7 + 0.32 * len(spreads)), layout="constrained")
    axes = figure.add_subplot()
    medians = [spread["median"] for spread in spreads.values()]
    below = [spread["median"] - spread["low"] for spread in spreads.values()]
    above = [spread["high"] - spread["median"] for spread in spreads.values()]
    colours = [OURS if name.startswith("regard") else PEERS for name in spreads]
    axes.barh(list(spreads), medians, xerr=[below, above], color=colours, capsize=2)
    for place, (median, more) in enumerate(zip(medians, above, strict=True)):
        axes.annotate(
            f"{median:,.0f}" if median >= 100 else f"{median:.1f}",
            (median + more, place),
            (4, 0),
            textcoords="offset points",
            va="center",
        )
    axes.margins(x=0.12)
    axes.invert_yaxis()
    axes.set_title(title, loc="left")
    axes.set_xlabel(unit)
    return figure


def lines(series: Mapping[str, list[dict[str, Any]]], suffix: str, of: str) -> Figure:
    """A chart of time and memory per token for each kind of work; `of` labels the other axis."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    panels = {
        "microseconds_per_token": (1.0, "microseconds per token"),
        "bytes_per_token": (1e3, "KB per token"),
    }
    for axes, (cost, (unit, label)) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        for work, colour in WORK.items():
            points = series.get(f"{work}, {suffix}")
            if not points:
                continue
            size = "rows" if suffix == "sentences" else "length"
            shown = [(point[size], point[cost] / unit) for point in points if point[cost] > 0]
            if shown:  # a logarithmic axis has no place for memory too little to be measured
                axes.loglog(*zip(*shown, strict=True), "o-", color=colour, label=work, markersize=3)
        ticks = sorted({x for line in axes.get_lines() for x in line.get_xdata()})
        axes.set_xticks(ticks, [f"{x:,}" for x in ticks], rotation=45)
        axes.set_xticks([], minor=True)
        axes.set_xlabel(of)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    figure.axes[0].legend(frameon=False)
    return figure


def figures(records: Mapping[str, dict[str, Any]]) -> Iterable[tuple[str, Figure]]:
    """The name of a file and its chart, for each chart that the records allow."""
    for name, record in records.items():
        kind, _, shape = name.partition("-")
        if kind == "training":
            speeds = by_contender(record, "tokens_per_second")
            yield name, bars(f"Training, {shape}", "tokens per second", speeds)
        elif kind == "decoding" and "file" in record:
            speeds = by_contender(record["file"], "sentences_per_second")
            yield name, bars(f"Translating a file, {shape}", "sentences per second", speeds)
        elif kind == "growth":
            tokens = "n, with as many rows as make 4,096 tokens"
            yield "growth-length", lines(record["series"], "n", tokens)
            yield "growth-one-row", lines(record["series"], "n of one row", "n, one row")
            yield "growth-sentences", lines(record["series"], "sentences", "rows of n = 32")


def by_contender(record: Mapping[str, Any], speed: str) -> dict[str, dict[str, float]]:
    return {name: summary[speed] for name, summary in record["contenders"].items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "performance")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, figure in figures(newest(args.results)):
        path = args.out / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        print(path)


if __name__ == "__main__":
    main()
