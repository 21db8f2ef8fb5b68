"""`regard info`: shows a model's sizes, scores and origin, and how its conversion was checked."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from regard.amounts import count_of
from regard.cli.console import json_for_terminal
from regard.cli.options import ModelArgument
from regard.errors import printable

_JsonOption = Annotated[bool, typer.Option("--json", help="Write everything, as one JSON object.")]


def info(model: ModelArgument, as_json: _JsonOption = False) -> None:
    """Show a model's sizes, scores and origin, and the certificate of a converted model.

    The model is verified first, as for translation. With --json, the whole recipe, the manifest
    and the certificate are printed.

    Examples:

    - `regard info runs/x`
    - `regard info models/opus --json | jq .certificate`
    """
    from regard.exchange.info import info_of

    found = info_of(model)
    if as_json:
        typer.echo(json_for_terminal(found, indent=1))
        return
    print_rows(_rows(found))


def print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Print a line for each name and its text.

    Characters that could control the terminal are escaped: a stranger may have made the model.
    """
    for name, text in rows:
        typer.echo(f"{name:<12} {printable(text)}")


def _rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The name and the text of each line to print; `found` is what `info_of` returned."""
    recipe = found["recipe"]
    rows = [
        ("model", found["model"]),
        ("parameters", _size(found)),
        ("sizes", _sizes(recipe["model"])),
        ("vocabulary", _vocabulary(found)),
        ("search", _search(recipe["search"])),
        ("longest", f"{recipe['data']['max_length']:,} pieces of a source"),
    ]
    if found["scores"]:
        figures = (f"{key} {_short(value)}" for key, value in found["scores"].items())
        rows.append(("validation", ", ".join(figures)))
    rows += _provenance(found["provenance"])
    if found["certificate"]:
        rows += certificate_rows(found["certificate"])
    return rows


def _size(found: dict[str, Any]) -> str:
    count = found["parameters"]
    shown = f"those of {found['provenance']['exported']}" if count is None else f"{count:,}"
    return f"{shown}, {found['bytes'] / 2**20:,.1f} MiB on disk"


def _short(value: Any) -> str:
    """The value as text; a float is rounded to four significant digits."""
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _sizes(model: dict[str, Any]) -> str:
    def both(key: str) -> str:
        return "+".join(map(str, dict.fromkeys([model[key], model[f"decoder_{key}"]])))

    text = f"N {both('layers')}, d_model {model['d_model']}, d_ff {both('d_ff')}, h {both('heads')}"
    usual = {
        "activation": "relu",
        "norm": "post",
        "positions": "sinusoidal",
        "embeddings": "shared",
    }
    return text + "".join(f", {key} {model[key]}" for key in usual if model[key] != usual[key])


def _vocabulary(found: dict[str, Any]) -> str:
    sizes = found["source_vocabulary"], found["vocabulary"]
    if sizes[0] == sizes[1]:
        return f"{sizes[1]:,} entries"
    return f"{sizes[0]:,} entries of the source, {sizes[1]:,} of the target"


def _search(search: dict[str, Any]) -> str:
    kind = "n" if search["penalty"] == "length" else "(5 + n) / 6"
    return f"beam {search['beam']}, score log p / ({kind})^{search['alpha']:g}"


def _provenance(provenance: dict[str, Any]) -> list[tuple[str, str]]:
    """A list of one line about the origin, as a name and a text; [] if the origin is unknown."""
    imported = provenance.get("imported")
    if isinstance(imported, dict):
        text = f"from {imported.get('from')} ({imported.get('format')})"
        return [("imported", f"{text}, by regard {imported.get('regard')}")]
    step, averaged = provenance.get("step"), provenance.get("averaged")
    if not isinstance(step, int):
        return []
    count = len(averaged) if isinstance(averaged, list) else 0
    mean = f", the mean of {count_of(count, 'checkpoint')}" * bool(count)
    return [("trained", count_of(step, "step") + mean)]


def certificate_rows(certificate: dict[str, Any]) -> list[tuple[str, str]]:
    """The name and the text of each line to print about a certificate."""
    versions = ", ".join(f"{name} {one}" for name, one in certificate["versions"].items())
    rows = [("converted", f"{certificate['conversion']}, {certificate['date']}; {versions}")]
    if certificate["not_run"]:
        return [*rows, ("proof", f"none: {certificate['not_run']}")]
    share = certificate["difference"] / (certificate["range"] or 1.0)
    return [
        *rows,
        (
            "logits",
            f"differ by at most {certificate['difference']:.2g}, {share:.1g} of their range",
        ),
        (
            "outputs",
            f"of {certificate['sentences']} sentences, {certificate['greedy']:.1%} equal by greedy "
            f"search, {certificate['searched']:.1%} by a beam of {certificate['beam']}, "
            f"{certificate['encoded']:.1%} cut alike",
        ),
    ]
