"""Names of the entries of a vocabulary, for programs that know entries by their names."""

from regard.text.protocol import AnyTokenizer, SideName
from regard.text.tokenizer import EOS, SPECIAL, Tokenizer


def entry_names(tokenizer: AnyTokenizer, side: SideName) -> list[str]:
    """A name for each id of a side, no two alike; a space is ▁, or Ġ in our own.

    Names are those of the tokenizer's file; where two entries have one name, the later one's ends
    in its id.
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
