"""Names of the entries of a vocabulary, for programs that identify entries by names."""

from collections.abc import Sequence

from regard.text.foreign.base import ForeignTokenizer
from regard.text.protocol import AnyTokenizer, SideName
from regard.text.tokenizer import PAD, Tokenizer


def entry_names(tokenizer: AnyTokenizer, side: SideName) -> list[str]:
    """A unique name for each id of the source's or the target's vocabulary.

    The names are in the order of the ids. A name is the piece as the tokenizer spells it, such as
    `lo@@`. If two entries have the same name, @ and the larger id are added to the second name.
    """
    if isinstance(tokenizer, Tokenizer):
        return list(tokenizer.entries)
    assert isinstance(tokenizer, ForeignTokenizer)
    names: dict[str, int] = {}
    for i, name in enumerate(tokenizer.spelled(side)):
        while name in names:
            name = f"{name}@{i}"
        names[name] = i
    return list(names)


def unknown_name(tokenizer: AnyTokenizer, names: Sequence[str]) -> str:
    """The name of the target's piece for unknown text or, if there is none, the name of <pad>.

    `names` are the names that `entry_names` gives for the target. regard's own tokenizers have no
    piece for unknown text: they have a piece for each byte, so they can encode any text.
    """
    unknown = tokenizer.unknown("target") if isinstance(tokenizer, ForeignTokenizer) else None
    return names[PAD if unknown is None else unknown]
