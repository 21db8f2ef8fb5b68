"""Word alignments are where encoder-decoder attention is strongest."""

import numpy as np

from regard.run.model_directory import Model
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


def test_what_cannot_be_aligned_has_no_pairs(model: Model) -> None:
    for sentence, translation, longest in ((" ", "3", 64), ("3", "", 64), ("3 1 4", "3", 2)):
        args = model.network, model.tokenizer, sentence, translation, longest
        assert aligned(*args) == []


def test_pharaoh_sorts_by_the_source() -> None:
    assert pharaoh([(2, 0), (0, 1), (0, 0)]) == "0-0 0-1 2-0"
    assert pharaoh([]) == ""
