"""The text of `docs/deviations.md`: departures from the paper, and settings of other code bases."""

import json
from collections.abc import Iterable, Sequence

from regard.departures.table import CANNOT_DEPART, DEPARTURES
from regard.departures.usual import USUAL, Usual

_INTRODUCTION = """\
# Where the paper, its authors' code and regard differ

This page is printed by `python -m regard.departures` from the values in `src/regard/departures/`,
and a test checks that it has those values. `regard paper-diff RECIPE|RUN|MODEL` says which of these
departures a recipe, a run or a model has; `--against t2t`, `fairseq` or `joeynmt` compares with
another code base.

The paper leaves some questions open. The code that its authors released answers them, sometimes in
contradiction to the text. Each row of this table is a question that we know of: the paper's words,
what the authors' code did, what regard does, why, and the tests that check what regard does. "The
same" refers to the cell on its left. "The authors' code" is tensor2tensor as released in June 2017;
"later" is the same repository today, whose `transformer_base` is no longer the paper's model.
"""
_FIELDS = """
## Fields of a recipe that are not judged

Every other field is judged by a row of the table above; a test goes through all fields.
"""
_USUAL = """
## The usual settings of other code bases

The values were taken from the public files that are named below; the files may have changed since.
A cell is empty if the setting does not have the field.
"""


def page() -> str:
    """The text of `docs/deviations.md`."""
    parts = [_INTRODUCTION, _departures(), _FIELDS, _not_judged(), _USUAL, _settings()]
    return "\n".join(parts)


def _departures() -> str:
    rows = [
        (
            str(number),
            one.section,
            f"“{one.quote}”" if one.quote else "does not say",
            one.theirs,
            one.ours,
            one.why,
            ", ".join(f"`{path}`" for path in one.tests),
        )
        for number, one in enumerate(DEPARTURES, 1)
    ]
    head = ("#", "Section", "The paper", "The authors' code", "regard", "Why", "Checked by")
    return _table(head, rows)


def _not_judged() -> str:
    rows = [(f"`{field}`", reason) for field, reason in CANNOT_DEPART.items()]
    return _table(("field", "what it changes"), rows)


def _settings() -> str:
    settings = [one for ones in USUAL.values() for one in ones]
    fields = dict.fromkeys(field for one in settings for field in one.fields)
    rows = [(f"`{field}`", *(_value(one, field) for one in settings)) for field in fields]
    values = _table(("field", *(one.name for one in settings)), rows)
    sources = [f"- {one.name}: `{one.source}`" for one in settings]
    beyond = [(name, *row) for name, (first, *_) in USUAL.items() for row in first.beyond]
    more = _table(("code base", "what no field expresses", "theirs", "regard"), beyond)
    return "\n".join([values, *sources, "", more])


def _value(usual: Usual, field: str) -> str:
    return json.dumps(usual.fields[field]) if field in usual.fields else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["--:" if name == "#" else "---" for name in head], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
