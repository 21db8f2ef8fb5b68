"""A table whose rows appear one by one: Markdown, JSON, a drawing, and a page of all tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from regard.errors import DataError
from regard.files.locks import locked
from regard.files.regular import reason
from regard.files.whole import write_file
from regard.parts.kept import Figures, Task, finished
from regard.parts.markdown import markdown_table
from regard.recipe import Recipe
from regard.reproduce.scales import Scale

NONE = "–"
"""The text of a cell that has no figure, or none yet."""


@dataclass(frozen=True)
class Study:
    """A reproduction of tables: its scale, its directory, and the seeds of each row."""

    scale: Scale
    out: Path
    seeds: tuple[int, ...]
    rows: frozenset[str] = frozenset()
    """The rows of Tables 2 and 3 that are trained; all if this is empty."""

    def trains(self, row: str) -> bool:
        """Whether a row of Table 2 or 3 is trained."""
        return not self.rows or row in self.rows


@dataclass(frozen=True)
class GrowingTable:
    """A table as it is now; rows that are not finished say so in their last cell."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    """Sentences that say how the figures were measured."""
    values: dict[str, Any]
    """All figures, as JSON values."""
    drawing: str
    """A drawing of the table, as SVG; empty if there is none."""
    pictures: tuple[str, ...] = ()
    """Paths of pictures that the page shows, relative to the page."""


@dataclass(frozen=True)
class Experiment:
    """A table of the paper (or the paper's Figures 1 to 5), and the functions that make it."""

    name: str
    prepare: Callable[[Study], object]
    """Prepares the data that the tasks need."""
    tasks: Callable[[Study], list[Task]]
    table: Callable[[Study, Figures], GrowingTable]
    """Makes the table from the numbers of the finished tasks."""
    recipes: Callable[[Study], dict[str, Recipe]]
    """Gives the recipe of each run by name; runs that differ only in the seed have one name."""


def all_tasks(study: Study, experiments: Sequence[Experiment]) -> list[Task]:
    """The tasks of some tables; a task of several tables is listed once."""
    tasks = (task for one in experiments for task in one.tasks(study))
    return list({(task.part, task.seed): task for task in tasks}.values())


def write_tables(
    study: Study, experiments: Sequence[Experiment], every: Collection[Experiment] = ()
) -> list[GrowingTable]:
    """Write the tables as they are now, and index.html, into `study.out`; return the tables.

    All rows of a table are written, even if `study.rows` names only some of them. A table of
    `experiments` has the seeds of `study`. It also keeps those seeds of its JSON file that have
    finished tasks. The other tables of `every` are written and returned only if an earlier call
    wrote their files into `study.out`; they keep the seeds of their JSON files. Processes that
    share a study take turns, so that a table never loses a row, and index.html never loses a table.
    Raises the errors of `finished`, DataError if a JSON file is damaged or unreadable, and
    RegardError if a file cannot be written.
    """
    with locked(study.out / ".tables.lock"):
        tables = []
        whole = replace(study, rows=frozenset())
        named = [*experiments, *(one for one in every if one not in experiments)]
        for one in named:
            if one not in experiments and not (study.out / f"{one.name}.md").exists():
                continue
            its = _with_seeds_of_table(whole, one, anew=one in experiments)
            numbers = finished(one.tasks(its), study.out)
            if one in experiments:  # keep the seeds of `study` and of finished tasks
                done = {*study.seeds, *(seed for _, seed in numbers)}
                its = replace(its, seeds=tuple(seed for seed in its.seeds if seed in done))
            table = one.table(its, numbers)
            tables.append(table)
            write_file(study.out / f"{one.name}.md", markdown_of(table))
            write_file(study.out / f"{one.name}.json", json.dumps(table.values, indent=1) + "\n")
            if table.drawing:
                write_file(study.out / f"{one.name}.svg", table.drawing)
        write_file(study.out / "index.html", page_of(study, tables))
    return tables


def _with_seeds_of_table(study: Study, one: Experiment, *, anew: bool) -> Study:
    """The study with the seeds in the JSON file of the table that the experiment `one` makes.

    If `anew` is True, the study keeps its own seeds, too. The study is returned unchanged if the
    JSON file is missing, or has no seeds. Raises DataError if the file is damaged or unreadable.
    """
    path = study.out / f"{one.name}.json"
    try:
        written = set(map(int, json.loads(path.read_text("utf-8"))["seeds"]))
    except (FileNotFoundError, KeyError):
        return study
    except OSError as error:
        raise DataError(f"cannot be read: {reason(error)}", path) from None
    except (ValueError, TypeError):
        raise DataError(
            "is damaged, so the seeds of the table are not known: remove it, and make the table "
            "again with as many --seeds as before (finished rows are not trained again)",
            path,
        ) from None
    return replace(study, seeds=tuple(sorted({*written, *(study.seeds if anew else ())})))


def markdown_of(table: GrowingTable) -> str:
    """The title, the table and the notes in Markdown."""
    rows, notes = markdown_table(table.head, table.rows), "".join(f"{n}\n\n" for n in table.notes)
    return f"# {table.title}\n\n{rows}\n{notes}"


def page_of(study: Study, tables: Iterable[GrowingTable]) -> str:
    """An HTML page of the tables and drawings; only `pictures` are separate files."""
    others = "" if study.scale.name == "paper" else "; they are of other text, and of larger models"
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width'>",
        f"<title>Tables at scale {escape(study.scale.name)}</title>",
        f"<style>{_STYLE}</style>",
        f"<h1>The paper's tables at scale {escape(study.scale.name)}</h1>",
        f"<p>Learned from {escape(study.scale.text)}. The paper's figures stand beside ours"
        f"{others}.</p>",
    ]
    for table in tables:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in table.head)
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
        pictures = "".join(f"<p><img alt='' src='{escape(one)}'></p>" for one in table.pictures)
        parts.append(
            f"<h2>{escape(table.title)}</h2><div><table><tr>{head}</tr>{rows}</table></div>"
            f"{notes}{table.drawing}{pictures}"
        )
    return "\n".join(parts) + "\n"


_STYLE = """body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;
color-scheme:light dark}div{overflow-x:auto}table{border-collapse:collapse;font-size:14px}
th,td{padding:.2rem .6rem;border-bottom:1px solid #8888;text-align:right;white-space:nowrap}
th:first-child,td:first-child,th:nth-child(2),td:nth-child(2){text-align:left}svg,img{max-width:100%}img{background:#fff}"""


def figure_of(values: Sequence[float]) -> str:
    """The mean and, for two or more values, ± the standard deviation; a dash for no values.

    The numbers have two digits after the point.
    """
    if not values:
        return NONE
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{fmean(values):.2f}{spread}"


def cell(value: float | None, digits: int) -> str:
    """A figure with this many digits after the point; a dash for None."""
    return NONE if value is None else f"{value:,.{digits}f}"
