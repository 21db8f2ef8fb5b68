"""What `/v1` is asked, and what it answers."""

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import HTTPException
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from regard.serve import engine
from regard.serve.flaws import Flaw
from regard.serve.passages import Passage
from regard.view.look import Look

MOST_WEIGHTS = 200_000
"""Numbers of attention in one answer, some 2 MB: 37 words and as many, by 6 layers of 8 heads."""


def _encoded(text: str) -> str:
    """The text, if it can be sent back; JSON may hold half of a character beyond 16 bits."""
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise PydanticCustomError("surrogate", "half of a character: a text was cut inside it")
    return text


Text = Annotated[str, AfterValidator(_encoded)]


class LookQuery(BaseModel):
    """A sentence whose translation is looked at."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[Text, Field(description="One sentence.")]
    source: Annotated[Text, Field(description="Language code.", examples=["en"])]
    target: Annotated[Text, Field(description="Language code.", examples=["de"])]


class Query(LookQuery):
    """What is asked."""

    text: Annotated[Text, Field(description="Sentences, paragraphs or HTML.")]
    format: Literal["text", "html"] = "text"
    n_best: Annotated[
        int, Field(ge=1, le=1000, description="Translations of each sentence, up to the beam.")
    ] = 1
    stream: Annotated[
        bool, Field(description="Server-sent events: each sentence as soon as it is ready.")
    ] = False
    partial: Annotated[
        bool, Field(description="In a stream: what is written of a sentence so far, too.")
    ] = False
    alignment: Annotated[
        bool, Field(description="From which words each word of the best translation came.")
    ] = False
    attention: Annotated[
        bool, Field(description="Every head's weights, for a text of one sentence.")
    ] = False

    @property
    def is_large(self) -> bool:
        """Whether its answer takes so long to write that the event loop should not wait for it."""
        return self.alignment or self.attention


class Hypothesis(BaseModel):
    """A translation of a sentence."""

    text: str
    score: Annotated[float, Field(description="log p over the length penalty of §6.1.")]


class Alignment(BaseModel):
    """Encoder-decoder attention by words, in the mean of all heads of all layers."""

    source: Annotated[list[str], Field(description="Words, then </s>.")]
    target: Annotated[list[str], Field(description="Words, then </s>.")]
    weights: Annotated[list[list[float]], Field(description="A row for each target word; sum 1.")]


Heads = list[list[list[list[float]]]]
"""By layer, head, the word that attends, and the word attended to."""


class Attention(BaseModel):
    """What every head does, by words; the sum over the last index is 1."""

    source: list[str]
    read: Annotated[list[str], Field(description="What the decoder reads: <s>, the translation.")]
    written: Annotated[list[str], Field(description="What it writes, a place further: to </s>.")]
    encoder: Annotated[Heads, Field(description="Self-attention of source.")]
    decoder: Annotated[Heads, Field(description="Self-attention of read.")]
    cross: Annotated[Heads, Field(description="From written to source.")]


class Sentence(BaseModel):
    """A sentence and its translations."""

    source: str
    translations: Annotated[list[Hypothesis], Field(description="Best first.")]
    before: Annotated[str, Field(description="What stands before it in the text.")]
    flaws: Annotated[list[Flaw], Field(description="What looks wrong with the best.")]
    retried: Annotated[bool, Field(description="Whether a second, wider search was made.")]
    alignment: Alignment | None = None
    attention: Attention | None = None


class Answer(BaseModel):
    """The text translated, and how."""

    text: str
    sentences: list[Sentence]
    after: Annotated[str, Field(description="What stands after the last sentence.")]


def sentence(passage: Passage, number: int, rendering: engine.Rendering, query: Query) -> Sentence:
    """One sentence of the answer; raises HTTPException where its attention is too much."""
    return Sentence(
        source=passage.sentences[number],
        translations=[
            Hypothesis(text=t.text, score=t.score) for t in rendering.translations[: query.n_best]
        ],
        before=passage.kept[number],
        flaws=list(rendering.flaws),
        retried=rendering.retried,
        alignment=_alignment(rendering.alignment),
        attention=_attention(rendering.look) if query.attention else None,
    )


def answer(passage: Passage, sentences: Sequence[Sentence]) -> Answer:
    """The whole of it."""
    best = [one.translations[0].text for one in sentences]
    return Answer(text=passage.joined(best), sentences=list(sentences), after=passage.kept[-1])


def _alignment(found: engine.Alignment | None) -> Alignment | None:
    if found is None:
        return None
    weights = [[round(x, 4) for x in row] for row in found.weights]
    return Alignment(source=list(found.source), target=list(found.target), weights=weights)


def _attention(look: Look | None) -> Attention:
    if look is None or sum(weights.size for weights in look.weights.values()) > MOST_WEIGHTS:
        raise HTTPException(400, "Invalid request: text: too long to show what every head does")
    found = look.as_json()
    return Attention(
        source=found["source"],
        read=found["read"],
        written=found["written"],
        **found["attention"],
    )
