"""The requests and answers of `/v1`."""

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import HTTPException
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from regard.mending.flaws import Flaw
from regard.serve import engine
from regard.text.passages import Passage
from regard.view.look import Look

MOST_WEIGHTS = 200_000
"""A request to /v1/translate is refused if its answer has more attention weights than this. With 6
layers and 8 heads, a sentence of 36 words and its translation of 36 words have almost this many,
which take 2 MB as JSON."""


def _encoded(text: str) -> str:
    """Return `text`; raises PydanticCustomError if it has half of a surrogate pair.

    JSON can contain half of a surrogate pair, but UTF-8 cannot.
    """
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise PydanticCustomError(
            "surrogate", "half of a surrogate pair: the text was cut inside a character"
        )
    return text


Text = Annotated[str, AfterValidator(_encoded)]


class LookQuery(BaseModel):
    """A sentence whose attention is shown."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[Text, Field(description="One sentence.")]
    source: Annotated[Text, Field(description="Language code.", examples=["en"])]
    target: Annotated[Text, Field(description="Language code.", examples=["de"])]


class Query(LookQuery):
    """A text to translate, and what to return."""

    text: Annotated[Text, Field(description="Sentences, paragraphs or HTML.")]
    format: Literal["text", "html"] = "text"
    n_best: Annotated[
        int, Field(ge=1, le=1000, description="Translations per sentence, at most the beam size.")
    ] = 1
    stream: Annotated[
        bool, Field(description="Send server-sent events: each sentence as soon as it is ready.")
    ] = False
    partial: Annotated[
        bool, Field(description="In a stream, also send unfinished translations.")
    ] = False
    alignment: Annotated[
        bool, Field(description="Return which source words each translated word came from.")
    ] = False
    attention: Annotated[
        bool, Field(description="Return the weights of every head; for one sentence only.")
    ] = False

    @property
    def is_large(self) -> bool:
        """Whether the answer has an alignment or attention, which take long to write as JSON."""
        return self.alignment or self.attention


class ScoredTranslation(BaseModel):
    """A translation of a sentence."""

    __qualname__ = "Hypothesis"  # the name of this class in the OpenAPI description
    model_config = ConfigDict(title="Hypothesis")

    text: str
    score: Annotated[
        float,
        Field(
            description="log p divided by the length penalty of §6.1; for a sentence that was "
            "translated in parts, the sum over its parts."
        ),
    ]


class Alignment(BaseModel):
    """Encoder-decoder attention between words: the mean over all heads of all layers."""

    source: Annotated[list[str], Field(description="Words, then </s>.")]
    target: Annotated[list[str], Field(description="Words, then </s>.")]
    weights: Annotated[
        list[list[float]], Field(description="One row per target word; each sums to 1.")
    ]


Heads = list[list[list[list[float]]]]
"""Weights indexed by layer, head, query word and key word."""


class Attention(BaseModel):
    """The weights of every head, between words; the sum over the last index is 1."""

    source: list[str]
    read: Annotated[
        list[str], Field(description="What the decoder reads: <s>, then the translation.")
    ]
    written: Annotated[list[str], Field(description="What it writes: the translation, then </s>.")]
    encoder: Annotated[
        Heads | None, Field(description="Self-attention over source, if the model has it.")
    ] = None
    decoder: Annotated[
        Heads | None, Field(description="Self-attention over read, if the model has it.")
    ] = None
    cross: Annotated[Heads, Field(description="From written to source.")]


class TranslatedSentence(BaseModel):
    """A sentence and its translations."""

    __qualname__ = "Sentence"  # the name of this class in the OpenAPI description
    model_config = ConfigDict(title="Sentence")

    source: str
    translations: Annotated[list[ScoredTranslation], Field(description="Best first.")]
    before: Annotated[str, Field(description="The text before the sentence.")]
    flaws: Annotated[list[Flaw], Field(description="Flaws of the best translation.")]
    retried: Annotated[bool, Field(description="Whether there was a second, wider search.")]
    alignment: Alignment | None = None
    attention: Attention | None = None


class Answer(BaseModel):
    """The translated text, and its sentences."""

    text: str
    sentences: list[TranslatedSentence]
    after: Annotated[str, Field(description="The text after the last sentence.")]


def translated_sentence(
    passage: Passage, done: Sequence[TranslatedSentence], rendering: engine.Rendering, query: Query
) -> TranslatedSentence:
    """The next sentence of the answer, after the sentences in `done`.

    Raises HTTPException if `query` asks for attention weights, and there are none or too many.
    """
    number, previous = len(done), done[-1].translations[0].text if done else ""
    return TranslatedSentence(
        source=passage.sentences[number],
        translations=[
            ScoredTranslation(text=t.text, score=t.score)
            for t in rendering.translations[: query.n_best]
        ],
        before=passage.before(number, previous, rendering.translations[0].text),
        flaws=list(rendering.flaws),
        retried=rendering.retried,
        alignment=_alignment(rendering.alignment),
        attention=_attention(rendering.look) if query.attention else None,
    )


def answer(passage: Passage, sentences: Sequence[TranslatedSentence]) -> Answer:
    """The answer to a request: its sentences, and the text of their best translations."""
    best = [one.translations[0].text for one in sentences]
    return Answer(text=passage.joined(best), sentences=list(sentences), after=passage.kept[-1])


def _alignment(found: engine.WordAlignment | None) -> Alignment | None:
    if found is None:
        return None
    weights = [[round(x, 4) for x in row] for row in found.weights]
    return Alignment(source=list(found.source), target=list(found.target), weights=weights)


def _attention(look: Look | None) -> Attention:
    if look is None or sum(weights.size for weights in look.weights.values()) > MOST_WEIGHTS:
        raise HTTPException(
            400, "Invalid request: text: too long to return the weights of every head"
        )
    found = look.as_json()
    return Attention.model_validate(found | found["attention"])  # other keys of `found` are ignored
