"""§6.3 Well-formed trees: a search in which every hypothesis can become a tree over its words.

A tree is written as symbols: (L begins a phrase with the label L, )L ends this phrase, and a tag is
the leaf of the next word (`regard.trees.linearise`). `WellFormed` wraps a model for a search. For
each hypothesis, `WellFormed` tracks which phrases are open and how many words have no leaf yet, and
allows only these next symbols:

    (L      if words are left for the phrase, enough symbols are left for the rest of the tree, and
            `TOGETHER` and `DEEPEST` allow one more open phrase
    )L      if the innermost open phrase has the label L and is not empty. The root may end only
            when no word is left.
    a tag   if words are left, and the next word's kind (`kind_of`) allows this tag. If the kind
            allows none of the model's tags, any tag may come next. Outside all phrases, a tag may
            come next only if the sentence has a single word.
    </s>    if the tree is complete

So every result is one tree with exactly one leaf per word. Allowed symbols keep the probabilities
of the model: the probability of forbidden symbols is not given to the allowed symbols.
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
"""At most this many phrases may begin at one word. This also limits chains of unary phrases. In
treebanks, up to 8 phrases begin at one word, and a chain has up to 4 phrases."""
DEEPEST = 100
"""Phrases may be nested at most this deep; in treebanks, the depth is at most 28."""

ANY, MARK, WORD = 0, 1, 2
"""Kinds of words, by the tags that they may have: any, only punctuation tags, only other tags."""

# A sum of these numbers says which symbols may follow. The sum includes _OPENS if a new phrase may
# begin, and _ENDS if </s> may follow. If a leaf may follow, the sum includes _LEAF once if the next
# word is of the kind ANY, twice if it is of MARK, and three times if it is of WORD.
_OPENS, _ENDS, _LEAF = 1, 2, 4
_Source = TypeVar("_Source")
_State = TypeVar("_State", bound=Selectable)


class Alphabet:
    """The symbols of trees; each symbol has a column in the logits that the search gets.

    In the search, the token of a symbol is the index of its column. The first three columns are
    <pad>, <s> and </s>, with their usual ids.
    """

    def __init__(self, symbols: Mapping[str, int], device: torch.device | str = "cpu"):
        """`symbols` maps names to ids; raises ModelError if it has no phrases or no tags."""
        labels = [name.removeprefix(OPEN) for name in symbols if name.startswith(OPEN)]
        labels = [label for label in labels if CLOSE + label in symbols]
        leaves = [name for name in symbols if not name.startswith((OPEN, CLOSE))]
        if not (labels and leaves):
            raise ModelError("the tokenizer has no symbols of trees: the model is not a parser")
        opening, closing = [OPEN + label for label in labels], [CLOSE + label for label in labels]
        self.names = ["<pad>", "<s>", "</s>", *opening, *closing, *leaves]
        ids = [PAD, BOS, EOS, *(symbols[name] for name in self.names[3:])]
        self.ids = torch.tensor(ids, device=device)
        """Each column's id in the model's vocabulary."""
        columns = torch.arange(len(ids), device=device)
        self.labels = len(labels)
        self.opens = (columns > EOS) & (columns <= EOS + self.labels)
        self.leaves = columns > EOS + 2 * self.labels
        self.closes = (columns > EOS) & ~self.opens & ~self.leaves
        self.follow = self._may_follow(columns == EOS)
        """For each sum of _OPENS, _ENDS and _LEAF, whether each column may follow. The columns
        of symbols )L are False here: whether )L may follow depends on the open phrase."""

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
    """The kind of a word: ANY, MARK or WORD."""
    return ANY if word in EITHER else MARK if word in MARKS else WORD


class ParserInput(NamedTuple, Generic[_Source]):
    """Sentences to parse."""

    source: _Source
    """The input of the model."""
    words: Int[Tensor, " sentences"]
    """The number of words of each sentence, which is the number of leaves."""
    kinds: Int[Tensor, "sentences longest"]
    """ANY, MARK or WORD for each word of a sentence, from the last word to the first."""
    max_lengths: Int[Tensor, " sentences"]
    """The largest number of tokens of each output, </s> included; it is at least `words` + 3."""


@dataclass(frozen=True)
class PartialTrees(Generic[_State]):
    """The unfinished trees of hypotheses, one in each row, and the model's state."""

    inner: _State
    kinds: Int[Tensor, "rows longest"]
    """ANY, MARK or WORD for each word, from the last word to the first."""
    left: Int[Tensor, " rows"]
    """The number of words that have no leaf yet."""
    room: Int[Tensor, " rows"]
    """The number of symbols that may still be written, </s> included."""
    depth: Int[Tensor, " rows"]
    """The number of open phrases."""
    begun: Int[Tensor, " rows"]
    """The number of open phrases that begin at the next word."""
    labels: Int[Tensor, "rows deepest"]
    """The labels of the open phrases, as numbers, the root's first."""

    def select(self, rows: Int[Tensor, "sentences beams"]) -> PartialTrees[_State]:
        """The state that has only these rows of this state, in this order."""
        flat = rows.flatten()
        fields = self.kinds, self.left, self.room, self.depth, self.begun, self.labels
        return PartialTrees(self.inner.select(rows), *(field[flat] for field in fields))

    def after(self, tokens: Int[Tensor, " rows"], alphabet: Alphabet) -> PartialTrees[_State]:
        """The state after one more symbol in each row; <s> and <pad> add nothing to a tree."""
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
        """Which symbols may follow, so that the tree can still be completed."""
        inside, words = self.depth > 0, self.left > 0
        # The 3 stands for three symbols: "(L" and ")L" of a new phrase, and </s>.
        to_close = self.left + self.depth + 3 <= self.room
        opens = words & to_close & (self.begun < TOGETHER) & (self.depth < DEEPEST)
        leaf = words & (inside | (self.left == 1))  # one word may be the whole tree
        ends = ~(inside | words)
        next_word = (self.left - 1).clamp(min=0).unsqueeze(1)
        leaf = leaf * (1 + self.kinds.gather(1, next_word)[:, 0])
        follow = alphabet.follow[opens * _OPENS + ends * _ENDS + leaf * _LEAF]
        closes = inside & (self.begun == 0) & ((self.depth > 1) | ~words)
        last = self.labels.gather(1, (self.depth - 1).clamp(min=0).unsqueeze(1))
        return follow.scatter(1, last + (EOS + 1 + alphabet.labels), closes.unsqueeze(1))


class WellFormed(Generic[_Source, _State]):
    """Wraps a model for a search, so that the logit of a symbol that may not come next is -inf.

    Only <pad>, which the search never selects, has another logit, which `_only` computes. In the
    search, a token is the number of a symbol's column in `alphabet`.
    """

    def __init__(self, model: Steppable[_Source, _State], alphabet: Alphabet):
        self.model, self.alphabet = model, alphabet

    def start(self, sentences: ParserInput[_Source]) -> PartialTrees[_State]:
        """The state before the first symbol."""
        none = torch.zeros_like(sentences.words)
        return PartialTrees(
            self.model.start(sentences.source),
            sentences.kinds,
            sentences.words,
            sentences.max_lengths,
            none,
            none,
            none.unsqueeze(1).repeat(1, DEEPEST),
        )

    def step(
        self, tokens: Int[Tensor, " rows"], state: PartialTrees[_State]
    ) -> tuple[Float[Tensor, "rows columns"], PartialTrees[_State]]:
        """The logits of the next symbol, and the new state.

        Forbidden symbols get -inf, except <pad> (see `_only`).
        """
        state = state.after(tokens, self.alphabet)
        logits, inner = self.model.step(self.alphabet.ids[tokens], state.inner)
        follow = state.may_follow(self.alphabet)
        return _only(logits, self.alphabet.ids, follow), replace(state, inner=inner)


def _only(
    logits: Float[Tensor, "rows vocabulary"],
    ids: Int[Tensor, " columns"],
    follow: Bool[Tensor, "rows columns"],
) -> Float[Tensor, "rows columns"]:
    """The logits of the columns `ids`: unchanged if `follow` is True, else -inf.

    <pad>, which the search never selects, gets the probability of all tokens that are left out. So
    a softmax gives the other symbols the probabilities that the model gives them.
    """
    total = torch.logsumexp(logits.float(), dim=-1)
    some = logits[:, ids].float().masked_fill_(~follow, -torch.inf)
    share = torch.logsumexp(some, dim=-1) - total
    some[:, PAD] = total + torch.log1p(-share.exp().clamp(max=1.0))
    return some
