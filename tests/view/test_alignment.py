"""Word alignments are where encoder-decoder attention is strongest."""

import numpy as np
import pytest

from regard.run.model_directory import Model
from regard.text.foreign import MosesTokenizer
from regard.text.foreign.moses import MosesSettings
from regard.view.alignment import aligned, pharaoh
from regard.view.look import look_at

SENTENCE, TRANSLATION = "3 1 4 15", "3 1 41 5"


def test_each_word_goes_with_the_one_that_it_attends_to(model: Model) -> None:
    """This text has no punctuation, so the words of `look` are those between blanks."""
    look = look_at(model, SENTENCE, TRANSLATION, by_words=True)
    between = look.weights["cross"].mean((0, 1))[:-1, :-1]
    pairs = aligned(model.network, model.tokenizer, SENTENCE, TRANSLATION, 64)
    assert pairs == [(int(np.argmax(row)), i) for i, row in enumerate(between)]
    assert len(pairs) == 4


def test_further_blanks_are_no_words(model: Model) -> None:
    expected = aligned(model.network, model.tokenizer, SENTENCE, TRANSLATION, 64)
    for sentence, translation in (
        (" 3  1 4\t 15 ", TRANSLATION),
        (SENTENCE, "  3 1   41 5\t"),
    ):
        assert aligned(model.network, model.tokenizer, sentence, translation, 64) == expected


def test_a_no_break_space_is_part_of_a_word(model: Model) -> None:
    pairs = aligned(model.network, model.tokenizer, "3 1\u00a04 15", TRANSLATION, 64)
    assert {word for word, _ in pairs} <= {0, 1, 2}


def test_words_are_what_blanks_separate_in_imported_models_too(model: Model) -> None:
    """Moses joins punctuation to words, and its tokenizer divides words at dashes."""
    words = ["<pad>", "<s>", "</s>", "<unk>", "a", "man", ",", "sleeps", ".", "&quot;", "well"]
    vocabulary = {word: i for i, word in enumerate([*words, "@-@", "read"])}
    tokenizer = MosesTokenizer.read(vocabulary, settings=MosesSettings(dashes_split=True))
    for sentence, count in (('a man , " sleeps " .', 7), ("a well-read man.", 3)):
        pairs = aligned(model.network, tokenizer, "a man", sentence, 64)
        assert [word for _, word in pairs] == list(range(count))
        pairs = aligned(model.network, tokenizer, sentence, "a man , sleeps .", 64)
        assert {word for word, _ in pairs} <= set(range(count))
    assert aligned(model.network, tokenizer, "a dog , sleeps .", "a man", 64) == []


def test_what_cannot_be_aligned_has_no_pairs(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(model.tokenizer, "encode", lambda lines, side="source": [[] for _ in lines])
        assert aligned(model.network, model.tokenizer, "\u200b", "3", 64) == []
    for sentence, translation, longest in ((" ", "3", 64), ("3", "", 64), ("3 1 4", "3", 2)):
        args = model.network, model.tokenizer, sentence, translation, longest
        assert aligned(*args) == []


def test_pharaoh_sorts_by_the_source() -> None:
    assert pharaoh([(2, 0), (0, 1), (0, 0)]) == "0-0 0-1 2-0"
    assert pharaoh([]) == ""
