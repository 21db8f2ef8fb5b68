"""The page: one file for the browser, that asks nothing of any network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from regard.view.colours import head_colours
from regard.view.look import NAMES, Look, distance, entropy
from regard.view.recording import KINDS, Kind

STEPS = 255
"""A weight is a byte: its error is under 0.2 %, less than an eye sees of a line's strength."""


def page(
    look: Look,
    kind: Kind = "encoder",
    layer: int = -1,
    heads: Sequence[int] = (),
    place: int | None = None,
) -> str:
    """All there is to see of a sentence, as HTML; what was typed is text in it, never markup.

    It opens at this kind and layer and these heads, or all, with the query at `place` held.
    """
    layers, every = look.weights[kind].shape[:2]
    first = {
        "kind": kind,
        "layer": layer % layers,
        "heads": list(heads or range(every)),
        "pinned": None if place is None else {"side": "left", "place": place},
    }
    return Template(_part("page.html")).substitute(
        policy=f"default-src 'none'; script-src {SCRIPT}; style-src {STYLE}",
        title=html.escape(f"Attention: {look.sentence}"),
        style=_part("page.css"),
        script=_part("page.js"),
        data=_embedded(_data(look) | {"first": first}),
    )


def _data(look: Look) -> dict[str, Any]:
    layers, heads = look.weights["encoder"].shape[:2]
    return {
        "sentence": look.sentence,
        "translation": look.translation,
        "layers": layers,
        "heads": heads,
        "colours": head_colours(heads),
        "kinds": {kind: _kind(look, kind) for kind in KINDS},
        "search": None if look.account is None else look.account.as_json(),
    }


def _kind(look: Look, kind: Kind) -> dict[str, Any]:
    weights = look.weights[kind]
    as_bytes = np.rint(weights * STEPS).astype(np.uint8).tobytes()
    return {
        "name": NAMES[kind],
        "queries": look.queries(kind),
        "keys": look.keys(kind),
        "weights": base64.b64encode(zlib.compress(as_bytes, 9)).decode(),
        "entropy": np.round(entropy(weights).astype(float), 3).tolist(),
        "distance": np.round(distance(weights).astype(float), 2).tolist(),
    }


def _embedded(data: dict[str, Any]) -> str:
    """JSON that no `</script>` or `<!--` in it can end."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _part(name: str) -> str:
    return resources.files("regard.view").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What the page's own rules allow: this text, and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


SCRIPT, STYLE = (_hash(_part(name)) for name in ("page.js", "page.css"))
"""How a content security policy names the script and the style of the page."""
