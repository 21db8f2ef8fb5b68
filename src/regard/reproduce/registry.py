"""The scales and the tables by name."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from regard.errors import RecipeError, unknown
from regard.paper import TABLE_3
from regard.reproduce.figures import FIGURES_EXPERIMENT
from regard.reproduce.scales import Mini, Scale
from regard.reproduce.small import Small
from regard.reproduce.table1 import TABLE_1_EXPERIMENT
from regard.reproduce.table2 import SYSTEMS, TABLE_2_EXPERIMENT
from regard.reproduce.table3 import TABLE_3_EXPERIMENT
from regard.reproduce.table4 import TABLE_4_EXPERIMENT
from regard.reproduce.tables import Experiment
from regard.reproduce.wmt import Wmt

EXPERIMENTS: Mapping[str, Experiment] = {
    one.name: one
    for one in (
        TABLE_1_EXPERIMENT,
        TABLE_3_EXPERIMENT,
        TABLE_2_EXPERIMENT,
        TABLE_4_EXPERIMENT,
        FIGURES_EXPERIMENT,
    )
}
_ROWS = {"table2": tuple(filter(None, SYSTEMS.values())), "table3": tuple(TABLE_3)}
"""The rows that `--rows` can name, by the name of their table."""
_SMALL = {
    one.name: one
    for one in (
        Small(),
        Small(
            name="small-fr",
            text="Multi30k, English to French",
            korean="Multi30k의 영어-프랑스어 데이터",
            language="fr",
        ),
    )
}
SCALES: Mapping[str, Scale] = {"mini": Mini(), **_SMALL, "paper": Wmt()}


def experiments_named(names: Collection[str]) -> list[Experiment]:
    """The experiments of these names, or every experiment if one of the names is `all`.

    Raises RecipeError for an unknown name.
    """
    for name in names:
        if name != "all" and name not in EXPERIMENTS:
            raise unknown("table", name, [*EXPERIMENTS, "all"])
    return [one for one in EXPERIMENTS.values() if one.name in names or "all" in names]


def rows_named(names: Collection[str], experiments: Sequence[Experiment]) -> frozenset[str]:
    """`names` as a set; raises RecipeError for a name that is no row of these experiments."""
    rows = [row for one in experiments for row in _ROWS.get(one.name, ())]
    for name in names:
        if not rows:
            raise RecipeError(f"--rows {name}: it is for table2 and table3: leave it out")
        if name not in rows:
            raise unknown("row", name, list(dict.fromkeys(rows)))
    return frozenset(names)


def scale_named(name: str, minutes: float | None = None) -> Scale:
    """The scale of this name; for small and small-fr, `minutes` is the training time of row `base`.

    If `minutes` is None, the scale keeps its usual training time. Raises RecipeError for an unknown
    name, or if `minutes` is given for another scale.
    """
    if name not in SCALES:
        raise unknown("scale", name, list(SCALES))
    if minutes is None:
        return SCALES[name]
    if name not in _SMALL:
        raise RecipeError(f"--minutes {minutes:g}: it is for --scale small: leave it out")
    return replace(_SMALL[name], minutes=minutes)
