"""Parameter files: the meaning of their lines, and messages about lines without meaning."""

from pathlib import Path

import pytest

from regard.errors import DataError
from regard.score.evalb.parameters import COLLINS, LARGEST_FILE, EvalbParameters, read_parameters


def reading(folder: Path, text: bytes) -> tuple[EvalbParameters, list[str]]:
    path = folder / "my.prm"
    path.write_bytes(text)
    return read_parameters(path)


def test_every_key(tmp_path: Path) -> None:
    parameters, said = reading(
        tmp_path,
        b"# DELETE_LABEL NP\n"
        b"DELETE_LABEL TOP\nDELETE_LABEL\t,  \r\n"
        b"DELETE_LABEL_FOR_LENGTH -NONE-\n"
        b"QUOTE_LABEL ``\nQUOTE_LABEL POS\n"
        b"EQ_LABEL ADVP   PRT\nEQ_WORD colour color\n"
        b"DEBUG 0\nLABELED 0   \nCUTOFF_LEN 15\nMAX_ERROR 3",
    )
    assert said == []
    assert parameters == EvalbParameters(
        deleted=frozenset({b"TOP", b","}),
        not_in_length=frozenset({b"-NONE-"}),
        quotes=frozenset({b"``", b"POS"}),
        equal_labels=frozenset({(b"ADVP", b"PRT"), (b"PRT", b"ADVP")}),
        equal_words=frozenset({(b"colour", b"color"), (b"color", b"colour")}),
        labelled=False,
        cutoff=15,
        max_errors=3,
    )


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    assert reading(tmp_path, b"\n \nAB\n") == (EvalbParameters(), [])
    assert EvalbParameters() == EvalbParameters(labelled=True, cutoff=40, max_errors=10)


def test_the_last_number_holds_and_labels_add_up(tmp_path: Path) -> None:
    text = b"MAX_ERROR 3\nMAX_ERROR 5\nDELETE_LABEL A\nDELETE_LABEL B\n"
    parameters, _ = reading(tmp_path, text)
    assert (parameters.max_errors, parameters.deleted) == (5, {b"A", b"B"})


@pytest.mark.parametrize(
    ("value", "number"),
    [(b"7 errors", 7), (b"-2", -2), (b"+4", 4), (b"many", 0), (b"9" * 4999, int("9" * 18))],
)
def test_numbers_are_digits_at_the_start(tmp_path: Path, value: bytes, number: int) -> None:
    assert reading(tmp_path, b"MAX_ERROR " + value)[0].max_errors == number


@pytest.mark.parametrize(("value", "labelled"), [(b"0", False), (b"1", True), (b"2", True)])
def test_brackets_are_labelled_unless_it_says_0(
    tmp_path: Path, value: bytes, labelled: bool
) -> None:
    assert reading(tmp_path, b"LABELED " + value)[0].labelled is labelled


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"DELETE_LABELS NP", "Unknown keyword (DELETE_LABELS NP) in parameter file"),
        (b" DELETE_LABEL NP \r", "Unknown keyword ( DELETE_LABEL NP) in parameter file"),
        (b"EQ_LABEL A", "EQ_LABEL requires two values"),
        (b"EQ_WORD A B C", "EQ_WORD requires two values"),
        (b"DELETE_LABEL ", "my.prm:2: DELETE_LABEL has no value: this line is ignored"),
        (b"DEBUG 2", "my.prm: DEBUG is ignored"),
    ],
)
def test_a_line_that_is_ignored(tmp_path: Path, line: bytes, sentence: str) -> None:
    parameters, said = reading(tmp_path, b"CUTOFF_LEN 9\n" + line + b"\nMAX_ERROR 2\n")
    assert parameters == EvalbParameters(cutoff=9, max_errors=2)
    assert len(said) == 1
    assert sentence in said[0]


def test_equal_labels_are_deleted_with_a_deleted_one() -> None:
    pairs = frozenset({(b"A", b"B"), (b"B", b"A"), (b"B", b"C"), (b"C", b"B")})
    parameters = EvalbParameters(deleted=frozenset({b"A"}), equal_labels=pairs)
    assert parameters.deleted_brackets == {b"A", b"B"}
    assert parameters.same_label(b"C", b"B")
    assert not parameters.same_label(b"A", b"C")


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.prm: cannot be read: No such file"):
        read_parameters(tmp_path / "no.prm")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_parameters(tmp_path)
    with pytest.raises(
        DataError, match="is not a parameter file: it has more than 1,048,576 bytes"
    ):
        reading(tmp_path, b"\n" * (LARGEST_FILE + 1))


@pytest.mark.data
def test_collins_is_the_official_file(regard_data: Path) -> None:
    path = regard_data / "oracles/evalb/open/edge-unary/prm"
    assert read_parameters(path) == (COLLINS, [])
