"""The attention weights of every head for one sentence and its translation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from regard.data.rows import one_per_row
from regard.encoder_decoder import AttentionKind, EncoderDecoder
from regard.errors import DataError, ModelError
from regard.run.model_directory import Model
from regard.search import search
from regard.text.protocol import AnyTokenizer, SideName
from regard.text.tokenizer import BOS, EOS
from regard.view.account import Account, SearchRecorder
from regard.view.pieces import Words, labels, merged, word_labels, words
from regard.view.recording import record_attention

Weights = Float[NDArray[np.float32], "layers heads queries keys"]

ATTENTION_NAMES: dict[AttentionKind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder-decoder attention",
}


def heading(kind: AttentionKind, layer: int, heads: Sequence[int]) -> str:
    """A heading that names the kind of attention, the layer and the heads.

    `layer` and `heads` are numbered from 0; the heading numbers them from 1.
    """
    numbers = ", ".join(str(head + 1) for head in heads)
    return f"{ATTENTION_NAMES[kind]}, layer {layer + 1}, head{'s' * (len(heads) > 1)} {numbers}"


@dataclass(frozen=True)
class Look:
    """A sentence, its translation and all attention weights; each position is a piece or a word."""

    sentence: str
    translation: str
    source: tuple[str, ...]
    """The source: x_1 ... x_m </s>."""
    read: tuple[str, ...]
    """The decoder's input: <s> y_1 ... y_n."""
    written: tuple[str, ...]
    """The decoder's output, one position ahead of `read`: y_1 ... y_n </s>. There is no </s> if the
    model has no position for it."""
    log_p: tuple[float, ...]
    """The log-probability (natural logarithm) of each position of `written`, given the source and
    the positions before."""
    weights: dict[AttentionKind, Weights]
    """The weights of each kind of attention that the model has; a query's weights sum to 1."""
    account: Account | None
    """An account of the search, if it was recorded."""

    def kind(self, asked: str | None, usual: AttentionKind = "encoder") -> AttentionKind:
        """The kind of attention to show: `asked`, unless it is None.

        If `asked` is None, the kind is `usual` or, if the model does not have that kind, the
        model's first kind. Raises ModelError if the model does not have the kind `asked`.
        """
        wanted = asked or (usual if usual in self.weights else next(iter(self.weights)))
        for kind in self.weights:
            if kind == wanted:
                return kind
        has = ", ".join(ATTENTION_NAMES[kind] for kind in self.weights)
        raise ModelError(f"this model has no {wanted} attention: it has {has}")

    def queries(self, kind: AttentionKind) -> tuple[str, ...]:
        """Labels of the queries.

        They are `source` for "encoder", `read` for "decoder" and `written` for "cross".
        """
        return {"encoder": self.source, "decoder": self.read, "cross": self.written}[kind]

    def keys(self, kind: AttentionKind) -> tuple[str, ...]:
        """Labels of the keys: `read` in the decoder's self-attention, else `source`."""
        return self.read if kind == "decoder" else self.source

    def as_json(self) -> dict[str, Any]:
        """All fields as JSON values.

        The key "attention" has the weights, indexed [kind][layer][head][query][key]. The key
        "search" has the account of the search; without an account, this key is left out.
        """
        found: dict[str, Any] = {
            "sentence": self.sentence,
            "translation": self.translation,
            "source": self.source,
            "read": self.read,
            "written": self.written,
            "log_p": [round(x, 6) for x in self.log_p],
            # Weights are rounded in fp64, since fp32 numbers would be written with up to 17 digits.
            "attention": {
                kind: np.round(weights.astype(float), 7).tolist()
                for kind, weights in self.weights.items()
            },
        }
        return found | ({} if self.account is None else {"search": self.account.as_json()})


def entropy(weights: Weights) -> Float[NDArray[np.float32], "layers heads"]:
    """For each layer and head, the mean entropy of the queries' weights, in bits.

    The entropy is 0 if each query has one weight of 1.
    """
    logs = np.log2(weights, out=np.zeros_like(weights), where=weights > 0)
    found: NDArray[np.float32] = -(weights * logs).sum(-1).mean(-1)
    return found + 0.0  # turns -0.0 into 0.0


def distance(weights: Weights) -> Float[NDArray[np.float32], "layers heads"]:
    """For each layer and head, the mean distance of keys from their query, weighted by attention.

    A distance is the absolute difference between the positions of a query and of a key.
    """
    queries, keys = (np.arange(size) for size in weights.shape[-2:])
    apart = np.abs(queries[:, None] - keys).astype(np.float32)
    found: NDArray[np.float32] = (weights * apart).sum(-1).mean(-1)
    return found


@torch.no_grad()
def look_at(
    model: Model,
    sentence: str,
    target: str | None = None,
    *,
    by_words: bool = False,
    listen: bool = False,
) -> Look:
    """Translate the sentence, or take `target` as its translation; record all attention weights.

    The model must be in fp32. With `by_words`, positions are words instead of pieces. With
    `listen`, an account of the search is added, unless `target` is given. Raises DataError if a
    text is empty, has a lone surrogate or is too long for the model; ModelError if the model's
    logits are not finite, or if the model has no attention.
    """
    source = [*_encoded(model, sentence, "source", model.recipe.data.max_length), EOS]
    positions = model.network.longest
    longest = min(len(source) + model.recipe.search.max_extra, positions)
    account = None
    if target is None:
        recorder = SearchRecorder()
        rows = one_per_row([source])
        limits = torch.tensor([longest])
        (found, *_), *_ = search(
            model.network, rows, limits, model.recipe.search,
            by=model.network.by, listen=recorder if listen else None,
        )  # fmt: skip
        written = [*found.tokens, EOS][:positions]
        if listen:
            account = recorder.account(model.tokenizer, model.recipe.search, longest)
    else:
        bound = min(max(longest, model.recipe.data.max_length), positions)
        written = [*_encoded(model, target, "target", bound), EOS]
    return seen(
        model.network, model.tokenizer, sentence, source, written,
        by_words=by_words, account=account,
    )  # fmt: skip


@torch.no_grad()
def seen(
    network: EncoderDecoder,
    tokenizer: AnyTokenizer,
    sentence: str,
    source: Sequence[int],
    written: Sequence[int],
    *,
    by_words: bool,
    account: Account | None = None,
) -> Look:
    """Record how the model attends when it reads the ids `source` and writes the ids `written`.

    `source` encodes `sentence`. `source` and `written` end in </s>, but `written` may be cut at the
    model's last position. With `by_words`, positions are words instead of pieces. `account` is put
    into the result. Raises ModelError if the model's logits are not finite, or if the model has no
    attention.
    """
    if not network.attentions():
        raise ModelError("this model has no attention to look at: name one of another model.family")
    read = [BOS, *written[:-1]]
    with record_attention(network) as recording:
        device = network.device
        rows = (one_per_row([ids]).to(device) for ids in (source, read))
        logits = network(*rows)[0].float().cpu()
    log_p = logits.log_softmax(-1)[torch.arange(len(written)), torch.tensor(written)]
    if not log_p.isfinite().all():
        raise ModelError("the model's logits are NaN or infinite: its weights are damaged")
    weights = {
        kind: torch.stack([layer[0].float().cpu() for layer in layers.values()]).numpy()
        for kind, layers in recording.items()
    }
    source_texts, sources = _places(tokenizer, source, "source", by_words)
    read_texts, reads = _places(tokenizer, read, "target", by_words)
    written_texts, writtens = _places(tokenizer, written, "target", by_words)
    places = {
        "encoder": (sources, sources),
        "decoder": (reads, reads),
        "cross": (writtens, sources),
    }
    return Look(
        sentence,
        tokenizer.decode([written])[0],
        source_texts,
        read_texts,
        written_texts,
        tuple(float(log_p[group].sum()) for group in writtens),
        {kind: merged(found, *places[kind]) for kind, found in weights.items()},
        account,
    )


def _encoded(model: Model, text: str, side: SideName, longest: int) -> list[int]:
    what = "the sentence" if side == "source" else "the translation"
    [pieces] = model.tokenizer.encode([text], side)
    if not pieces or not text.strip():
        raise DataError(f"{what} is empty: give some text")
    if len(pieces) >= longest:
        raise DataError(
            f"{what} has {len(pieces) + 1} pieces, and this model takes at most {longest}: "
            "give a shorter one"
        )
    return pieces


def _places(
    tokenizer: AnyTokenizer, ids: Sequence[int], side: SideName, by_words: bool
) -> tuple[tuple[str, ...], Words]:
    """The labels of the positions to show, and the pieces that belong to each position.

    A position is a word if `by_words` is True, otherwise a piece.
    """
    names = tokenizer.names(ids, side)
    if not by_words:
        return tuple(labels(names)), [[place] for place in range(len(ids))]
    groups = words(names)
    return tuple(word_labels(tokenizer, ids, side, groups)), groups
