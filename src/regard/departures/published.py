"""The figures that the paper prints for a row of its tables."""

from regard.departures.case import values
from regard.departures.distance import departing
from regard.paper import (
    BASE,
    BASE_TIME,
    BIG_EN_FR_IN_TEXT,
    BIG_TIME,
    PAPER_RECIPES,
    TABLE_2,
    TABLE_3_RESULTS,
    TABLE_4,
    TrainingTime,
)

_OURS = "Transformer (4 layers)"
_PARSERS = {"wsj": "WSJ only, discriminative", "wsj-semi": "semi-supervised"}


def published(row: str) -> list[str]:
    """The figures that the paper prints for a row, as texts that name their table or section."""
    if row in _PARSERS:
        [f1] = (one.f1 for one in TABLE_4 if (one.name, one.training) == (_OURS, _PARSERS[row]))
        return [f"Table 4: F1 {f1} on section 23 of the Wall Street Journal"]
    lines = []
    big = row.startswith("big")
    if row in ("base", "big") or row.endswith("en-fr"):
        lines.append(_table_2(big, french=row.endswith("en-fr")))
    if row == "big-en-fr":
        lines.append(f"§6.1: BLEU {BIG_EN_FR_IN_TEXT} in the text, for the same model")
    if row in TABLE_3_RESULTS:
        one = TABLE_3_RESULTS[row]
        lines.append(
            f"Table 3: perplexity {one.perplexity} and BLEU {one.bleu} on newstest2013, without "
            f"averaging; {one.millions} million parameters, {one.steps:,} steps"
        )
    if row in ("base", "big"):
        lines.append(_time(BIG_TIME if big else BASE_TIME))
    return lines


def row_in_words(row: str) -> str:
    """A description of a row: how its recipe differs from base."""
    recipe = PAPER_RECIPES[row]
    changed = values(recipe, [change.field for change in departing(BASE, recipe)])
    return f"base with {changed}" if changed else "the base model"


def _table_2(big: bool, french: bool) -> str:
    row = TABLE_2["Transformer (big)" if big else "Transformer (base model)"]
    bleu, flops = (row.en_fr, row.en_fr_flops) if french else (row.en_de, row.en_de_flops)
    pair = "English to French" if french else "English to German"
    return f"Table 2: BLEU {bleu} on newstest2014, {pair}; {flops:.1e} operations".replace(
        "e+", "e"
    )


def _time(time: TrainingTime) -> str:
    gpus, step = f"{time.gpus} {time.gpu}", f"{time.seconds_per_step} seconds a step"
    return f"§5.2: {time.hours:g} hours on {gpus}, {step}"
