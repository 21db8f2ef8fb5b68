"""The HTML page: its size, its data, and that no text becomes markup."""

import base64
import json
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from regard.run.model_directory import Model
from regard.view.colours import head_colours
from regard.view.look import look_at
from regard.view.page import attention_page
from regard.view.recording import KINDS
from view.conftest import SENTENCE, a_look

HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!-- <script>",
    "& &amp; &lt;b&gt; \u2028 $style ${data} \\u003c",
    "</title><style>*{display:none}</style>",
]


class Reader(HTMLParser):
    """The elements and texts that a browser finds in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags:
            self.texts.append((self.tags[-1][0], data))


def read(text: str) -> tuple[Reader, dict[str, Any]]:
    reader = Reader()
    reader.feed(text)
    scripts = [data for tag, data in reader.texts if tag == "script" and data.startswith("{")]
    return reader, json.loads(scripts[0])


@pytest.mark.parametrize("sharpness", [0.3, 3.0])
def test_forty_words_and_six_layers_of_eight_heads_are_less_than_a_megabyte(
    sharpness: float,
) -> None:
    assert len(attention_page(a_look(40, 6, 8, sharpness)).encode()) < 1_000_000


def test_weights_come_back_within_a_byte() -> None:
    given = a_look(7, 2, 3)
    _, data = read(attention_page(given))
    for kind in KINDS:
        packed = base64.b64decode(data["kinds"][kind]["weights"])
        found = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(2, 3, 8, 8) / 255
        np.testing.assert_allclose(found, given.weights[kind], atol=0.5 / 255 + 1e-6)
        assert tuple(data["kinds"][kind]["queries"]) == given.queries(kind)
        assert tuple(data["kinds"][kind]["keys"]) == given.keys(kind)


@pytest.mark.parametrize(("encoder", "decoder"), [(2, 5), (5, 2)])
def test_a_decoder_of_other_heads(encoder: int, decoder: int) -> None:
    _, data = read(attention_page(a_look(3, 1, encoder, decoder_heads=decoder), "cross"))
    assert data["heads"] == len(data["colours"]) == len(data["first"]["heads"]) == 5
    counts = {kind: len(data["kinds"][kind]["entropy"][0]) for kind in KINDS}
    assert counts == {"encoder": encoder, "decoder": decoder, "cross": decoder}


@pytest.mark.parametrize("text", HOSTILE)
def test_what_was_typed_is_text(text: str) -> None:
    harmless = a_look(2, 1, 2)
    hostile = replace(
        harmless, sentence=text, translation=text, source=(text, text, text), written=(text,) * 3
    )
    reader, data = read(attention_page(hostile))
    assert data["sentence"] == data["translation"] == text
    assert data["kinds"]["encoder"]["keys"] == [text] * 3
    assert [tag for tag, _ in reader.tags] == [
        tag for tag, _ in read(attention_page(harmless))[0].tags
    ]
    title = "".join(found for tag, found in reader.texts if tag == "title")
    assert title.rstrip("\n") == f"Attention: {text}"


def test_a_hostile_sentence_through_the_model(model: Model) -> None:
    _, data = read(attention_page(look_at(model, HOSTILE[0], HOSTILE[1])))
    assert (data["sentence"], data["translation"]) == tuple(HOSTILE[:2])


def test_nothing_is_asked_of_a_network() -> None:
    text = attention_page(a_look(3, 1, 2))
    reader, _ = read(text)
    assert not [attrs for _, attrs in reader.tags if {"src", "href", "style"} & attrs.keys()]
    assert set(re.findall(r"https?://[^\"' ]*", text)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
    assert "url(" not in text.replace("createObjectURL(", "").replace("revokeObjectURL(", "")
    (policy,) = [a["content"] for _, a in reader.tags if a.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_the_search_is_in_it_where_it_was_heard(model: Model) -> None:
    _, data = read(attention_page(look_at(model, SENTENCE, listen=True)))
    assert data["search"]["steps"][0][0]["fate"] in ("lives", "dies")
    assert read(attention_page(look_at(model, SENTENCE)))[1]["search"] is None


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 8, 16, 32])
def test_every_head_is_seen_on_white_and_on_black(heads: int) -> None:
    colours = head_colours(heads)
    assert len(set(colours)) == heads
    for colour in colours:
        assert 1.05 / (luminance(colour) + 0.05) > 3
        assert (luminance(colour) + 0.05) / (luminance("#16181d") + 0.05) > 3
