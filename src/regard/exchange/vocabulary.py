"""Names of the entries of a vocabulary, for programs that identify entries by names."""

from collections.abc import Sequence

from regard.text.foreign.base import ForeignTokenizer
from regard.text.protocol import AnyTokenizer, SideName
from regard.text.tokenizer import EOS, PAD, SPECIAL, Tokenizer


def entry_names(tokenizer: AnyTokenizer, side: SideName) -> list[str]:
    """A unique name for each id of a side; in names, a space is ▁, or Ġ for a tokenizer of ours.

    The tokenizer gives the names. If two entries have the same name, @ and the id are added to the
    name of the second.
    """
    if isinstance(tokenizer, Tokenizer):
        return list(tokenizer.entries)
    size = tokenizer.size if side == "target" else tokenizer.source_size
    names = list(SPECIAL)
    known = set(names)
    for i in range(EOS + 1, size):
        [name] = tokenizer.names([i], side)
        name = name.replace(" ", "▁")
        names.append(name if name not in known else f"{name}@{i}")
        known.add(names[-1])
    return names


def unknown_name(tokenizer: AnyTokenizer, names: Sequence[str]) -> str:
    """The target's name of the piece that stands for unknown pieces; of <pad> if there is none.

    A tokenizer of ours has no such piece: it has all bytes, so nothing is unknown to it.
    """
    unknown = tokenizer.unknown("target") if isinstance(tokenizer, ForeignTokenizer) else None
    return names[PAD if unknown is None else unknown]
