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
    """The name, from the target's `names`, that stands for names which the vocabulary lacks.

    A tokenizer of ours has all bytes, and so lacks nothing: for it, this is the name of <pad>.
    """
    unknown = tokenizer.unknown("target") if isinstance(tokenizer, ForeignTokenizer) else None
    return names[PAD if unknown is None else unknown]
