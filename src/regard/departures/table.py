"""All departures, in groups, and the recipe fields that no departure concerns."""

from collections.abc import Mapping

from regard.departures.case import Departure
from regard.departures.data import DATA
from regard.departures.model import MODEL
from regard.departures.results import RESULTS
from regard.departures.training import TRAINING

DEPARTURES: tuple[Departure, ...] = (*MODEL, *DATA, *TRAINING, *RESULTS)
"""Every departure that is known."""

CANNOT_DEPART: Mapping[str, str] = {
    "training.arithmetic": "the code that computes the same equations: only rounding and the "
    "masks of dropout differ",
    "training.log_every": "only the journal",
    "training.validate_every": "only what is shown, unless training.best or patience is set; "
    "those two are judged",
    "training.validate_sentences": "only what is shown, unless training.best is set",
    "training.bleu_tokenizer": "only what is shown, unless training.best or tune is set",
    "training.keep": "only how many checkpoints stay on the disk beyond those to be averaged",
}
"""Fields, as `section.key`, that never count as departures, and what each of them can affect."""
