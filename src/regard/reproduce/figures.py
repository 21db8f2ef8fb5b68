"""Figures 1 to 5, drawn from the base model of the tables by the code of `regard look`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from regard.corpus import Example, examples
from regard.files.whole import write_file
from regard.parts.kept import Figures, Measured, Task, numbers_of
from regard.recipe import Recipe
from regard.reproduce.prepared import prepare_text_once
from regard.reproduce.rows import row_task, run_of, scaled
from regard.reproduce.scales import data_in
from regard.reproduce.tables import Experiment, GrowingTable, Study
from regard.run.model_directory import Model, open_model
from regard.transformer import Transformer
from regard.view.architecture import architecture
from regard.view.drawing import plotting
from regard.view.figures import Number, figure, sharpest
from regard.view.look import Look, look_at
from regard.view.multihead import multihead

SEED = 24
"""The seed of the figures' sentences in the built-in corpus; no training text has this seed."""
_SHORT = 14
"""Only sentences of at most this many tokens are drawn, so that the figure is legible."""
CAPTIONS = {
    1: "the model, from its modules",
    2: "its attention, from its modules",
    3: "from make to what it makes of its object, in every head of the last layer",
    4: "a sharp head of the last layer, and two heads for a pronoun",
    5: "the two sharpest heads of the last layer",
}


def _tasks(study: Study) -> list[Task]:
    base = _recipes(study)["base"]
    seed = study.seeds[0]
    drawn = partial(draw_figures, study.out, seed)
    trained = row_task(study.out, "base", seed, base, data_in(study.out))
    return [trained, Task("figures", 1, trained.settings, drawn)]


def draw_figures(out: Path, seed: int) -> Measured | None:
    """Draw Figures 1 to 5 into `out`/figures; return their number, under the name "figures".

    The figures show the base model that is trained with `seed`. If this model is not finished yet,
    nothing is drawn, and None is returned. If its training diverged, nothing is drawn, and the
    number is 0.
    """
    trained = numbers_of(out, "base", seed)
    if trained is None:
        return None
    if "diverged" in trained:
        return {"figures": 0.0}
    model, folder = open_model(run_of(out, "base", seed)), out / "figures"
    folder.mkdir(exist_ok=True)
    assert isinstance(model.network, Transformer)
    write_file(folder / "figure-1.svg", architecture(model.network, "svg"))
    write_file(folder / "figure-2.svg", multihead(model.network, "svg"))
    verb, pronoun = next(filter(_has_verb, examples(SEED))), next(filter(_has_it, examples(SEED)))
    wanted: list[tuple[Number, Example, int | None]] = [
        (3, verb, verb.comparatives[0].source_index),
        (4, pronoun, pronoun.pronouns[0].source_index),
        (5, pronoun, None),
    ]
    for number, one, place in wanted:
        write_file(folder / f"figure-{number}.svg", _drawn(model, number, one, place))
    return {"figures": float(len(CAPTIONS))}


def _has_verb(one: Example) -> bool:
    far = any(c.source_adjective - c.source_index > 5 for c in one.comparatives)
    return far and len(one.source_tokens) <= _SHORT


def _has_it(one: Example) -> bool:
    return bool(one.pronouns) and len(one.source_tokens) <= _SHORT


def _drawn(model: Model, number: Number, one: Example, place: int | None) -> bytes:
    seen: Look = look_at(model, one.source, one.target, by_words=True)
    last, heads = seen.weights["encoder"].shape[:2]
    chosen = sharpest(seen, "encoder", last - 1, place, heads if number == 3 else 2)
    return figure(seen, number, "svg", "encoder", last - 1, chosen, place)


def _table(study: Study, numbers: Figures) -> GrowingTable:
    found = numbers.get(("figures", 1))
    is_done = bool(found and found["figures"])
    state = "done" if is_done else "not made: base diverged" if found else "waiting"
    rows = tuple(
        (f"Figure {number}", caption, f"figures/figure-{number}.svg", state)
        for number, caption in CAPTIONS.items()
    )
    return GrowingTable(
        f"Figures 1 to 5, of base at scale {study.scale.name}",
        ("figure", "what it shows", "file", "state"),
        rows,
        ("Sentences are of the built-in corpus, and unseen. docs/figures.md counts how often a "
         "head is right.",),
        {"done": is_done},
        "",
        tuple(row[2] for row in rows) if is_done else (),
    )  # fmt: skip


def _recipes(study: Study) -> dict[str, Recipe]:
    return {"base": scaled("base", study.scale.base(study.out))}


def _prepare(study: Study) -> None:
    """Prepare the text; without matplotlib, raise MissingExtra before any training begins."""
    with plotting():
        prepare_text_once(study)


FIGURES_EXPERIMENT = Experiment("figures", _prepare, _tasks, _table, _recipes)
"""The functions that make Figures 1 to 5."""
