"""§6.3 Only trees: a search in which every hypothesis can still become a tree over its words.

`WellFormed` stands between a search and a model. It knows of each hypothesis which phrases are open
and how many words have no leaf yet, and leaves only the symbols that may follow:

    (L      while words are left for it, and there is room to close it
    )L      where L was opened last and is not empty; for the root, when no word is left
    a tag   while words are left; one of punctuation for a punctuation mark, and for it alone
    </s>    when the tree is complete

So whatever is found is one tree with exactly one leaf a word. The probabilities stay those of the
model: what it gives to the symbols that may not follow is lost, not handed to the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import ModelError
from regard.search import Selectable, Steppable
from regard.text.tokenizer import BOS, EOS, PAD
from regard.trees.linearise import CLOSE, OPEN
from regard.trees.punctuation import EITHER, MARKS, TAGS

TOGETHER = 10
"""Phrases that begin at the same word, at most; so no chain of unary phrases is longer. Treebanks
have up to 8, and chains of up to 4."""
DEEPEST = 100
"""Phrases inside one another, at most; treebanks have up to 28."""

ANY, MARK, WORD = 0, 1, 2
"""Kinds of words: which tag one may have is not decided, one of punctuation, or another."""

_OPENS, _ENDS, _LEAF = 1, 2, 4  # what may follow, as a sum, with 4, 8 or 12 for ANY, MARK or WORD
Source = TypeVar("Source")
State = TypeVar("State", bound=Selectable)


class Alphabet:
    """The symbols of trees, as columns: of logits, and as the tokens of a search over them.

    The first three columns are <pad>, <s> and </s>, with their usual numbers.
    """

    def __init__(self, symbols: Mapping[str, int], device: torch.device | str = "cpu"):
        """`symbols` are the ids of the tokens of trees; raises ModelError where one is missing."""
        labels = [name.removeprefix(OPEN) for name in symbols if name.startswith(OPEN)]
        labels = [label for label in labels if CLOSE + label in symbols]
        leaves = [name for name in symbols if not name.startswith((OPEN, CLOSE))]
        if not (labels and leaves):
            raise ModelError("the tokenizer has no symbols of trees: this is no parser")
        opening, closing = [OPEN + label for label in labels], [CLOSE + label for label in labels]
        self.names = ["<pad>", "<s>", "</s>", *opening, *closing, *leaves]
        ids = [PAD, BOS, EOS, *(symbols[name] for name in self.names[3:])]
        self.ids = torch.tensor(ids, device=device)
        """The model's id of each column."""
        columns = torch.arange(len(ids), device=device)
        self.labels = len(labels)
        self.opens = (columns > EOS) & (columns <= EOS + self.labels)
        self.leaves = columns > EOS + 2 * self.labels
        self.closes = (columns > EOS) & ~self.opens & ~self.leaves
        self.follow = self._may_follow(columns == EOS)
        """Which columns may follow, closing ones aside, by the sum of what may."""

    def _may_follow(self, ends: Bool[Tensor, " columns"]) -> Bool[Tensor, "sums columns"]:
        mark = torch.tensor([name in TAGS for name in self.names], device=ends.device)
        some = self.leaves & mark, self.leaves & ~mark
        leaves = [self.leaves, *(tags if tags.any() else self.leaves for tags in some)]
        sums = torch.arange(_LEAF * (1 + len(leaves)), device=ends.device).unsqueeze(1)
        follow = ((sums & _OPENS > 0) & self.opens) | ((sums & _ENDS > 0) & ends)
        for kind, tags in enumerate(leaves):
            follow |= (sums // _LEAF == 1 + kind) & tags
        return follow


def kind_of(word: str) -> int:
    """ANY, MARK or WORD."""
    return ANY if word in EITHER else MARK if word in MARKS else WORD


class Sentences(NamedTuple, Generic[Source]):
    """What is to be parsed."""

    source: Source
    """For the model."""
    words: Int[Tensor, " sentences"]
    """Leaves of each tree."""
    kinds: Int[Tensor, "sentences longest"]
    """ANY, MARK or WORD: of the words of each sentence, from the last to the first."""
    max_lengths: Int[Tensor, " sentences"]
    """Longest output, </s> included, as the search has it; at least `words` + 3."""


@dataclass(frozen=True)
class Growing(Generic[State]):
    """Trees half written, and the model's state; a row is a hypothesis."""

    inner: State
    kinds: Int[Tensor, "rows longest"]
    """Of the words, from the last to the first."""
    left: Int[Tensor, " rows"]
    """Words without a leaf."""
    room: Int[Tensor, " rows"]
    """Symbols that may still be written."""
    depth: Int[Tensor, " rows"]
    """Phrases open."""
    begun: Int[Tensor, " rows"]
    """Of these, how many the next word begins."""
    labels: Int[Tensor, "rows deepest"]
    """Of the open phrases, from the root, their number."""

    def select(self, rows: Int[Tensor, "sentences beams"]) -> Growing[State]:
        """The state of these rows."""
        flat = rows.flatten()
        return Growing(
            self.inner.select(rows),
            self.kinds[flat],
            self.left[flat],
            self.room[flat],
            self.depth[flat],
            self.begun[flat],
            self.labels[flat],
        )

    def after(self, tokens: Int[Tensor, " rows"], alphabet: Alphabet) -> Growing[State]:
        """With one more symbol of each row; <s> and <pad> are none."""
        opens, closes = alphabet.opens[tokens], alphabet.closes[tokens]
        leaf = alphabet.leaves[tokens]
        top = self.depth.clamp(max=DEEPEST - 1).unsqueeze(1)
        label = torch.where(opens, tokens - EOS - 1, self.labels.gather(1, top)[:, 0])
        return replace(
            self,
            left=self.left - leaf.long(),
            room=self.room - (opens | closes | leaf).long(),
            depth=self.depth + opens.long() - closes.long(),
            begun=(self.begun + 1) * opens,
            labels=self.labels.scatter(1, top, label.unsqueeze(1)),
        )

    def may_follow(self, alphabet: Alphabet) -> Bool[Tensor, "rows columns"]:
        """Which symbols leave it possible to complete the tree."""
        inside, words = self.depth > 0, self.left > 0
        to_close = self.left + self.depth + 3 <= self.room  # with one phrase more, and </s>
        opens = words & to_close & (self.begun < TOGETHER) & (self.depth < DEEPEST)
        leaf = words & (inside | (self.left == 1))  # outside, the tree of a single word
        ends = ~(inside | words)
        next_word = (self.left - 1).clamp(min=0).unsqueeze(1)
        leaf = leaf * (1 + self.kinds.gather(1, next_word)[:, 0])
        follow = alphabet.follow[opens * _OPENS + ends * _ENDS + leaf * _LEAF]
        closes = inside & (self.begun == 0) & ((self.depth > 1) | ~words)
        last = self.labels.gather(1, (self.depth - 1).clamp(min=0).unsqueeze(1))
        return follow.scatter(1, last + (EOS + 1 + alphabet.labels), closes.unsqueeze(1))


class WellFormed(Generic[Source, State]):
    """A model of trees as a Steppable over the columns of an alphabet, which writes only trees."""

    def __init__(self, model: Steppable[Source, State], alphabet: Alphabet):
        self.model, self.alphabet = model, alphabet

    def start(self, sentences: Sentences[Source]) -> Growing[State]:
        """The state before the first symbol."""
        none = torch.zeros_like(sentences.words)
        return Growing(
            self.model.start(sentences.source),
            sentences.kinds,
            sentences.words,
            sentences.max_lengths,
            none,
            none,
            none.unsqueeze(1).repeat(1, DEEPEST),
        )

    def step(
        self, tokens: Int[Tensor, " rows"], state: Growing[State]
    ) -> tuple[Float[Tensor, "rows columns"], Growing[State]]:
        """Logits of the next symbol, -inf where it may not follow, and the state."""
        state = state.after(tokens, self.alphabet)
        logits, inner = self.model.step(self.alphabet.ids[tokens], state.inner)
        follow = state.may_follow(self.alphabet)
        return _only(logits, self.alphabet.ids, follow), replace(state, inner=inner)


def _only(
    logits: Float[Tensor, "rows vocabulary"],
    ids: Int[Tensor, " columns"],
    follow: Bool[Tensor, "rows columns"],
) -> Float[Tensor, "rows columns"]:
    """The logits of these ids. <pad>, which no search takes, has the probability of all others."""
    total = torch.logsumexp(logits.float(), dim=-1)
    some = logits[:, ids].float().masked_fill_(~follow, -torch.inf)
    share = torch.logsumexp(some, dim=-1) - total
    some[:, PAD] = total + torch.log1p(-share.exp().clamp(max=1.0))
    return some
