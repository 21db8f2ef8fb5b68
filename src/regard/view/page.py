"""The web page of `regard look`: one HTML file, which loads nothing over a network."""

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

from regard.encoder_decoder import AttentionKind
from regard.view.colours import head_colours
from regard.view.look import ATTENTION_NAMES, Look, distance, entropy

STEPS = 255
"""A weight from 0 to 1 is stored as a byte from 0 to 255; the error, below 0.002, is invisible."""


def attention_page(
    look: Look,
    kind: AttentionKind = "encoder",
    layer: int = -1,
    heads: Sequence[int] = (),
    place: int | None = None,
) -> str:
    """An HTML page of all attention weights of a sentence; user input is escaped.

    At first, the page shows attention of this `kind`, in this `layer` and these `heads` (all if
    none are given). If `place` is not None, the query at position `place` is pinned: it stays
    selected until the user pins another word, unpins this one, or chooses another kind. Layers,
    heads and positions are numbered from 0; -1 is the last layer. Raises KeyError if the model has
    no attention of this kind.
    """
    first = {
        "kind": kind,
        "layer": layer % len(look.weights[kind]),
        "heads": list(heads or range(_most_heads(look))),
        "pinned": None if place is None else {"side": "left", "place": place},
    }
    return Template(_part("page.html")).substitute(
        policy=f"default-src 'none'; script-src {SCRIPT_HASH}; style-src {STYLE_HASH}",
        title=html.escape(f"Attention: {look.sentence}"),
        style=_part("page.css"),
        script=_part("page.js"),
        data=_embedded(_data(look) | {"first": first}),
    )


def _data(look: Look) -> dict[str, Any]:
    heads = _most_heads(look)
    return {
        "sentence": look.sentence,
        "translation": look.translation,
        "layers": max(len(weights) for weights in look.weights.values()),
        "heads": heads,
        "colours": head_colours(heads),
        "kinds": {kind: _kind(look, kind) for kind in look.weights},
        "search": None if look.account is None else look.account.as_json(),
    }


def _most_heads(look: Look) -> int:
    """The largest number of heads that a layer of the encoder or decoder has."""
    return max(weights.shape[1] for weights in look.weights.values())


def _kind(look: Look, kind: AttentionKind) -> dict[str, Any]:
    weights = look.weights[kind]
    as_bytes = np.rint(weights * STEPS).astype(np.uint8).tobytes()
    return {
        "name": ATTENTION_NAMES[kind],
        "queries": look.queries(kind),
        "keys": look.keys(kind),
        "weights": base64.b64encode(zlib.compress(as_bytes, 9)).decode(),
        "entropy": np.round(entropy(weights).astype(float), 3).tolist(),
        "distance": np.round(distance(weights).astype(float), 2).tolist(),
    }


def _embedded(data: dict[str, Any]) -> str:
    """JSON for a script element, escaped so that no text in it is markup, such as `</script>`."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _part(name: str) -> str:
    return resources.files("regard.view").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The checksum of a text, in the form with which a content security policy allows the text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


SCRIPT_HASH, STYLE_HASH = (_hash(_part(name)) for name in ("page.js", "page.css"))
"""Checksums of page.js and page.css, in the form that a content security policy takes. With them,
the browser runs only this script and uses only this style sheet."""
