"""A foreign model's embeddings and its layer before the softmax, in the order of regard's ids.

regard's ids are 0 = <pad>, 1 = <s>, 2 = </s>; all other foreign entries follow in the foreign
order. If the foreign model lacks <pad> or <s>, regard's entry <pad> or <s> has a bias of -1e30
before the softmax, so that its probability is 0.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.text.foreign.base import ForeignTokenizer
from regard.text.foreign.order import IdOrder
from regard.text.tokenizer import BOS

NEVER = -1e30
"""The bias of an entry whose probability is 0."""

Kind = Literal["shared", "target", "inputs", "apart"]


@dataclass(frozen=True)
class ForeignMatrices:
    """A foreign model's embeddings `source` and `target`, and `output`, the matrix before softmax.

    Each matrix is [entries, d_model]; the index of a row is a foreign id.
    """

    tokenizer: ForeignTokenizer[Any]
    source: Tensor
    target: Tensor
    output: Tensor
    bias: Tensor | None
    """[entries] The bias before the softmax, in the order of foreign ids; None if there is none."""
    start: Tensor
    """[d_model] The vector that the decoder begins with, before scaling."""
    never: frozenset[int] = frozenset()
    """Foreign ids whose probability is 0."""

    @classmethod
    def begun_by_entry(
        cls,
        tokenizer: ForeignTokenizer[Any],
        source: Tensor,
        target: Tensor,
        output: Tensor,
        bias: Tensor | None,
        where: Path,
    ) -> Self:
        """The matrices of a model whose decoder begins with an entry of its vocabulary.

        This entry, which `tokenizer` maps to <s>, becomes regard's <s>. Raises ModelError, which
        names the path `where`, if the target's vocabulary has no such entry.
        """
        begin = tokenizer.order.specials[BOS]
        if begin < 0:
            raise ModelError(f"{where}: its vocabulary has no <s>, with which targets begin")
        return cls(tokenizer, source, target, output, bias, target[begin])

    @property
    def kind(self) -> Kind:
        """The value of `model.embeddings`: which of the three matrices are equal."""
        output = torch.equal(self.target, self.output)
        inputs = self.tokenizer.shared and torch.equal(self.source, self.target)
        if output and inputs:
            return "shared"
        return "target" if output else "inputs" if inputs else "apart"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a recipe that follow from the matrices, with their values."""
        return {"embeddings": self.kind, "output_bias": self.output_bias is not None}

    @property
    def output_bias(self) -> Tensor | None:
        """[entries] The bias before softmax, in the order of regard's ids; None if all are 0."""
        order = self.tokenizer.order
        ids = torch.tensor(order.foreign_ids)
        bias = torch.zeros(order.size) if self.bias is None else self.bias.clone()
        bias[list(self.never)] = NEVER
        ours = bias[ids.clamp(min=0)].masked_fill(ids < 0, NEVER)
        return ours if ours.any() else None

    def weights(self, positions: Tensor | None = None) -> dict[str, Tensor]:
        """The matrices and the bias under regard's names, with rows in the order of regard's ids.

        `positions`, a table of learned positions [positions, d_model], is copied into every
        embedding.
        """
        kind, order = self.kind, self.tokenizer.order
        target = _ordered(self.target, order, self.start)
        source = _ordered(self.source, self.tokenizer.order_of("source"), None)
        sides = {"embedding": target if kind in ("shared", "inputs") else source}
        if kind in ("target", "apart"):
            sides["target_embedding"] = target
        found = {f"{side}.tokens.weight": table for side, table in sides.items()}
        if positions is not None:
            found |= {f"{side}.positions": positions.clone() for side in sides}
        if kind in ("inputs", "apart"):
            found["output.tokens.weight"] = _ordered(self.output, order, None)
        if self.output_bias is not None:
            found["output_bias"] = self.output_bias
        return found


def _ordered(table: Tensor, order: IdOrder, start: Tensor | None) -> Tensor:
    """Return the rows of `table`, moved from the order of foreign ids to that of regard's ids.

    If an id of regard has no foreign id, its row has only zeros. Unless `start` is None, the row of
    <s> is `start`.
    """
    ids = torch.tensor(order.foreign_ids)
    rows = table[ids.clamp(min=0)]
    rows[ids < 0] = 0.0
    if start is not None:
        rows[BOS] = start
    return rows
