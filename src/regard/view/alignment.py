"""Word alignments: the source word to which each word of a translation attends most."""

import re
from collections.abc import Sequence

import torch

from regard.data.rows import one_per_row
from regard.encoder_decoder import EncoderDecoder
from regard.text.protocol import AnyTokenizer
from regard.text.tokenizer import BOS, EOS
from regard.view.pieces import merged, pieces_of_words
from regard.view.recording import record_attention

WordPairs = list[tuple[int, int]]
"""Each pair has the number of a source word and the number of a word of the translation, both
counted from 0. One or more blanks or tabs separate words."""


@torch.no_grad()
def aligned(
    model: EncoderDecoder, tokenizer: AnyTokenizer, sentence: str, translation: str, longest: int
) -> WordPairs:
    """Pair each word of a translation with the word of the sentence that has the largest weight.

    The weights are the mean over all heads and layers of encoder-decoder attention. </s> is left
    out, because words without a counterpart often attend to </s>. Blanks and tabs between two words
    are first replaced by one blank, because each further blank would count as a word. Returns no
    pairs in these cases: a text is blank; the sentence has more than `longest` pieces (</s>
    included); the translation is too long for the model; the model has no encoder-decoder
    attention; or it is unknown which pieces form a word.
    """
    before, after = (re.sub("[ \t]+", " ", t).strip(" ") for t in (sentence, translation))
    [read], [made] = tokenizer.encode([before]), tokenizer.encode([after], "target")
    source, written = [*read, EOS], [*made, EOS]
    keys = pieces_of_words(tokenizer.names(read, "source"), before)
    queries = pieces_of_words(tokenizer.names(made, "target"), after)
    if (
        "cross" not in model.attentions()
        or not (read and made and keys and queries)
        or len(source) > longest
        or len(written) > model.longest
    ):
        return []
    with record_attention(model) as recording:
        rows = (one_per_row([ids]).to(model.device) for ids in (source, [BOS, *written[:-1]]))
        model(*rows)
    weights = torch.stack([layer[0].float().cpu() for layer in recording["cross"].values()])
    ends = [len(made)], [len(read)]  # the positions of </s>
    between = merged(weights.mean((0, 1)).numpy(), [*queries, ends[0]], [*keys, ends[1]])
    return [(int(key), query) for query, key in enumerate(between[:-1, :-1].argmax(1))]


def pharaoh(alignment: Sequence[tuple[int, int]]) -> str:
    """The alignment as text, such as 0-0 1-2: the numbers of a source and of a target word.

    Words are counted from 0. The translation programs Pharaoh and Moses write this format.
    """
    return " ".join(f"{source}-{target}" for source, target in sorted(alignment))
