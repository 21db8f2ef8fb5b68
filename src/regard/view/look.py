"""One sentence, its translation, and how every head attended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from regard.data.rows import one_per_row
from regard.errors import DataError, ModelError
from regard.run.model_directory import Model
from regard.search import search
from regard.text.tokenizer import BOS, EOS, PAD, Tokenizer
from regard.transformer import Transformer
from regard.view.account import Account, Listener
from regard.view.pieces import Words, labels, merged, spelled, word_labels, words
from regard.view.recording import KINDS, Kind, record_attention

Weights = Float[NDArray[np.float32], "layers heads queries keys"]

NAMES: dict[Kind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder-decoder attention",
}


@dataclass(frozen=True)
class Look:
    """What there is to see of one sentence; places are pieces, or words."""

    sentence: str
    translation: str
    source: tuple[str, ...]
    """x_1 ... x_m </s>"""
    read: tuple[str, ...]
    """What the decoder reads: <s> y_1 ... y_n."""
    written: tuple[str, ...]
    """What it writes, a place further: y_1 ... y_n </s>."""
    log_p: tuple[float, ...]
    """Of each that is written, given those before."""
    weights: dict[Kind, Weights]
    """Each row sums to 1. The place that reads y_i is, in the decoder, that which writes y_i+1."""
    account: Account | None

    def queries(self, kind: Kind) -> tuple[str, ...]:
        """What attends: in encoder-decoder attention by what it writes, else by what it reads."""
        return {"encoder": self.source, "decoder": self.read, "cross": self.written}[kind]

    def keys(self, kind: Kind) -> tuple[str, ...]:
        """What is attended to."""
        return self.read if kind == "decoder" else self.source

    def as_json(self) -> dict[str, Any]:
        """Of lists, strings and numbers; weights by kind, layer, head, query and key."""
        found: dict[str, Any] = {
            "sentence": self.sentence,
            "translation": self.translation,
            "source": self.source,
            "read": self.read,
            "written": self.written,
            "log_p": [round(x, 6) for x in self.log_p],
            # Of the double nearest to 7 digits: fp32's own would print 17 of them.
            "attention": {
                kind: np.round(self.weights[kind].astype(float), 7).tolist() for kind in KINDS
            },
        }
        return found | ({} if self.account is None else {"search": self.account.as_json()})


def entropy(weights: Weights) -> Float[NDArray[np.float32], "layers heads"]:
    """Bits, in the mean over queries: 0 where each attends to one place alone."""
    logs = np.log2(weights, out=np.zeros_like(weights), where=weights > 0)
    found: NDArray[np.float32] = -(weights * logs).sum(-1).mean(-1)
    return found + 0.0  # no minus zero


def distance(weights: Weights) -> Float[NDArray[np.float32], "layers heads"]:
    """Places between query and key, in the mean over queries by their weights."""
    queries, keys = (np.arange(size) for size in weights.shape[-2:])
    apart = np.abs(queries[:, None] - keys).astype(np.float32)
    found: NDArray[np.float32] = (weights * apart).sum(-1).mean(-1)
    return found


@torch.no_grad()
def look(
    model: Model,
    sentence: str,
    target: str | None = None,
    *,
    by_words: bool = False,
    listen: bool = False,
) -> Look:
    """Translate the sentence, or take `target` for its translation, and record every head.

    The model is in fp32. `by_words` joins the pieces of a word: see `pieces.merged`. With `listen`
    there is an account of the search, if there was one.
    Raises DataError for an empty sentence, or one that is longer than those learned from;
    ModelError for a model whose logits are not numbers.
    """
    source = [*_encoded(model, sentence, "the sentence", model.recipe.data.max_length), EOS]
    positions = model.transformer.embedding.longest
    longest = min(len(source) + model.recipe.search.max_extra, positions)
    account = None
    if target is None:
        listener = Listener()
        rows = one_per_row([source])
        limits = torch.tensor([longest])
        (found, *_), *_ = search(
            model.transformer, rows, limits, model.recipe.search,
            bos=BOS, eos=EOS, pad=PAD, listen=listener if listen else None,
        )  # fmt: skip
        written = [*found.tokens, EOS][:positions]
        if listen:
            account = listener.account(model.tokenizer, model.recipe.search, longest)
    else:
        bound = min(max(longest, model.recipe.data.max_length), positions)
        written = [*_encoded(model, target, "the translation", bound), EOS]
    return seen(
        model.transformer, model.tokenizer, sentence, source, written,
        by_words=by_words, account=account,
    )  # fmt: skip


@torch.no_grad()
def seen(
    transformer: Transformer,
    tokenizer: Tokenizer,
    sentence: str,
    source: Sequence[int],
    written: Sequence[int],
    *,
    by_words: bool,
    account: Account | None = None,
) -> Look:
    """How a model attends that reads the pieces of `sentence` and writes these.

    Both end in </s>, unless the positions of the model do. Raises ModelError as `look` does.
    """
    read = [BOS, *written[:-1]]
    with record_attention(transformer) as recording:
        device = transformer.embedding.tokens.weight.device
        rows = (one_per_row([ids]).to(device) for ids in (source, read))
        logits = transformer(*rows)[0].float().cpu()
    log_p = logits.log_softmax(-1)[torch.arange(len(written)), torch.tensor(written)]
    if not log_p.isfinite().all():
        raise ModelError("the model's logits are NaN or infinite: its weights are damaged")
    weights = {
        kind: torch.stack([layer[0].float().cpu() for layer in recording.layers(kind)]).numpy()
        for kind in KINDS
    }
    shown = _by_words if by_words else _by_pieces
    (source_texts, sources), (read_texts, reads), (written_texts, writtens) = (
        shown(tokenizer, ids) for ids in (source, read, written)
    )
    return Look(
        sentence,
        tokenizer.decode([written])[0],
        source_texts,
        read_texts,
        written_texts,
        tuple(float(log_p[group].sum()) for group in writtens),
        {
            "encoder": merged(weights["encoder"], sources, sources),
            "decoder": merged(weights["decoder"], reads, reads),
            "cross": merged(weights["cross"], writtens, sources),
        },
        account,
    )


def _encoded(model: Model, text: str, what: str, longest: int) -> list[int]:
    if not text.strip():
        raise DataError(f"{what} is empty: give some text")
    pieces = model.tokenizer.encode([text])[0]
    if len(pieces) >= longest:
        raise DataError(
            f"{what} has {len(pieces) + 1} pieces, and this model takes at most {longest}: "
            "give a shorter one"
        )
    return pieces


def _by_pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[tuple[str, ...], Words]:
    return tuple(labels(spelled(tokenizer, ids))), [[place] for place in range(len(ids))]


def _by_words(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[tuple[str, ...], Words]:
    groups = words(spelled(tokenizer, ids))
    return tuple(word_labels(tokenizer, ids, groups)), groups
