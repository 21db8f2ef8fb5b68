"""Read the configuration of Hugging Face's `generate`, as settings of regard's search.

Only the keys in `GENERATION_KEYS` are read. If regard's search cannot do what such a key asks for,
a ModelError names the key. There is one exception: if the maximum length of an output is larger
than a recipe allows, this length is lowered (`most_extra`).
"""

from dataclasses import dataclass
from typing import Any

from regard.errors import ModelError
from regard.exchange.foreign import ForeignConfig, most_extra
from regard.recipe import MOST_STEPPED, WIDEST_BEAM

_ONLY: dict[str, tuple[Any, ...]] = {
    "begin_suppress_tokens": ([], None),
    "constraints": (None,),
    "diversity_penalty": (0.0,),
    "do_sample": (False,),
    "early_stopping": (False,),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1.0,),
    "exponential_decay_length_penalty": (None,),
    "forced_bos_token_id": (None,),
    "force_words_ids": (None,),
    "forced_decoder_ids": (None,),
    "guidance_scale": (None, 1.0),
    "max_time": (None,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "no_repeat_ngram_size": (0,),
    "num_beam_groups": (1,),
    "penalty_alpha": (None, 0.0),
    "repetition_penalty": (1.0,),
    "sequence_bias": (None,),
    "stop_strings": (None,),
}
"""Keys of a generation config that can change outputs, each with the values that do not change
outputs. If a key has any other value, the import is refused."""
SPECIAL_IDS = "eos_token_id", "pad_token_id", "decoder_start_token_id"
GENERATION_KEYS = (
    *_ONLY, *SPECIAL_IDS, "bad_words_ids", "length_penalty", "max_length", "max_new_tokens",
    "num_beams", "renormalize_logits", "suppress_tokens",
)  # fmt: skip
"""All keys of a generation config that `generation_of` reads."""
LONGEST_OUTPUT = 512
"""The value of `max_length`, in tokens, if the configuration does not have this key.

The default of `transformers` is about 20, which would cut many sentences.
"""


@dataclass(frozen=True)
class Generation:
    """The settings of the search in a generation config; all ids are ids of the foreign model."""

    beam: int
    alpha: float
    """The exponent of the length penalty."""
    limit: int
    """An output has at most this many tokens, </s> included."""
    start: int
    """The id with which the decoder begins. `end` is the id of </s>, `pad` that of the padding."""
    end: int
    pad: int
    forbidden: frozenset[int]
    """Ids that the search never chooses. If `excluded` is False, the softmax includes them."""
    excluded: bool
    """The value of `renormalize_logits`: whether the softmax leaves out the forbidden ids."""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a recipe that describe this search, with their values."""
        return {
            "beam": self.beam,
            "alpha": self.alpha,
            "penalty": "length",
            "finish": "beam",
            "max_extra": most_extra(self.limit, self.beam),
        }

    @property
    def specials(self) -> tuple[int, int, int]:
        """The foreign ids that correspond to our <pad>, <s> and </s>; -1 if no id corresponds.

        regard never outputs <pad> and <s>, but its softmax includes both. So a foreign id can
        correspond to <pad> or <s> only if the foreign search never outputs this id, and the foreign
        softmax includes it.
        """
        counted = frozenset[int]() if self.excluded else self.forbidden
        begin = self.start if self.start in counted else -1
        pad = self.pad if self.pad in counted and self.pad != begin else -1
        return pad, begin, self.end


def generation_of(keys: ForeignConfig, vocabulary: int) -> Generation:
    """Read a generation config; the target's vocabulary has `vocabulary` entries.

    Raises ModelError for malformed values, and for settings that regard's search lacks.
    """
    for key, values in _ONLY.items():
        if key in keys and keys.get(key) not in values:
            raise ModelError(
                f"{keys.where}: {key} is {keys.get(key)!r:.60}, and no search of regard does that: "
                "remove it there to import the model with a plain beam search"
            )
    end, pad, start = (_id(keys, key, vocabulary) for key in SPECIAL_IDS)
    forbidden = _forbidden(keys, vocabulary, end)
    excluded = keys.flag("renormalize_logits", False)
    counted = frozenset() if excluded else forbidden - {start, pad}
    if counted:
        raise ModelError(
            f"{keys.where}: never writes the id {min(counted)}, which is neither its start nor its "
            "padding: no search of regard does that: remove it from bad_words_ids and "
            "suppress_tokens"
        )
    limit = keys.whole("max_length", LONGEST_OUTPUT, least=1) - 1
    return Generation(
        beam=keys.whole("num_beams", 1, least=1, most=WIDEST_BEAM + 1),
        alpha=keys.real("length_penalty", 1.0),
        limit=min(keys.whole("max_new_tokens", max(1, limit), least=1), MOST_STEPPED),
        start=start,
        end=end,
        pad=pad,
        forbidden=forbidden,
        excluded=excluded,
    )


def _id(keys: ForeignConfig, key: str, vocabulary: int) -> int:
    """The id that is the value of a key; the value may also be a list of one id.

    Raises ModelError for any other value, or if the key is missing.
    """
    value = keys.get(key)
    if isinstance(value, list) and len(value) == 1:
        [value] = value
    if type(value) is not int or not 0 <= value < vocabulary:
        raise keys.refusal(key, f"an id of the {vocabulary:,} entries")
    return value


def _forbidden(keys: ForeignConfig, vocabulary: int, end: int) -> frozenset[int]:
    """The ids that the search never writes.

    Raises ModelError unless each forbidden word is one id of the vocabulary, other than `end`.
    """
    words = keys.get("bad_words_ids", [])
    if not isinstance(words, list):
        raise keys.refusal("bad_words_ids", "a list of lists of ids")
    if not all(isinstance(word, list) and len(word) == 1 for word in words):
        raise keys.refusal("bad_words_ids", "words of one id each to be converted exactly")
    single = _ids(keys, "bad_words_ids", [word[0] for word in words], vocabulary)
    suppressed = _ids(keys, "suppress_tokens", keys.get("suppress_tokens", []), vocabulary)
    for key, ids in (("bad_words_ids", single), ("suppress_tokens", suppressed)):
        if end in ids:
            raise keys.refusal(key, "without the end of sentence")
    return single | suppressed


def _ids(keys: ForeignConfig, key: str, ids: Any, vocabulary: int) -> frozenset[int]:
    """The ids in the list `ids`, as a set; raises ModelError unless it is a list of valid ids.

    `key` is the name that the error gives to the list.
    """
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < vocabulary for i in ids):
        raise keys.refusal(key, f"ids of the {vocabulary:,} entries")
    return frozenset(ids)
