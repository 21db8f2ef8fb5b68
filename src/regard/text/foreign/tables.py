"""Two tables of a foreign vocabulary: from pieces to regard's ids, from foreign ids to pieces."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from regard.errors import ModelError
from regard.text.foreign.order import IdOrder


class PieceTable:
    """Looks up regard's ids of pieces, and the pieces of foreign ids.

    regard's ids are those in a model of regard; foreign ids are those in the vocabulary. A special
    symbol, or a piece that the vocabulary lacks, gets the id of the piece `unknown`.
    """

    def __init__(self, vocabulary: Mapping[str, int], order: IdOrder, unknown: str, where: Path):
        """Raises ModelError if `vocabulary` does not fit `order`, or gives `unknown` no usable id.

        `vocabulary` maps pieces to foreign ids. The piece `unknown` must be in it, and must not be
        a special symbol. `where` is the vocabulary's file, for the error's message.
        """
        largest = max(vocabulary.values())
        if largest >= order.size:
            raise ModelError(
                f"{where}: has the id {largest:,}, and the model has {order.size:,} entries: it is "
                "the vocabulary of another model"
            )
        if vocabulary.get(unknown, -1) in {-1, *order.specials}:
            raise ModelError(f"{where}: has no piece {unknown!r:.80} for what is unknown")
        self.pieces = {i: piece for piece, i in vocabulary.items()}
        """A map from foreign ids to pieces."""
        ours = order.ids.tolist()
        self._ids = {p: ours[i] for p, i in vocabulary.items() if i not in order.specials}
        self.unknown: int = self._ids[unknown]
        """regard's id of the piece `unknown`."""

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """regard's id of each piece; special symbols and unknown pieces get the id of `unknown`."""
        known, unknown = self._ids, self.unknown
        return [known.get(piece, unknown) for piece in pieces]
