"""Translation from text to text: the order of results, batches, copies and refusals."""

import itertools
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from threading import Lock
from typing import NoReturn

import pytest
import torch

import regard.decoding
import regard.division
import regard.machine.copies
from regard.arithmetic.choose import can_use_loops
from regard.arithmetic.cuda import Cuda
from regard.data.rows import Rows, one_per_row
from regard.decoder_state import DecoderState
from regard.equations import Arithmetic
from regard.errors import DataError, ModelError, RecipeError, RegardError
from regard.machine.streams import Streams
from regard.run.model_directory import write_model
from regard.text.tokenizer import BOS, EOS
from regard.transformer import Transformer
from regard.translation import Translation, Translator, load
from regard.view.recording import record_attention
from run.copying import RECIPE
from untrained import BRIEF, LINES, TOKENIZER, Heard, translator


@pytest.fixture(scope="module")
def two_best() -> list[list[Translation]]:
    """The two best translations of each line, in the usual batches."""
    return list(translator().stream(LINES, n_best=2))


def test_all_together_is_each_alone_in_the_same_order() -> None:
    lines = LINES[::2]
    alone = [translator().translate([line])[0] for line in lines]
    assert translator().translate(lines) == alone
    assert translator().translate(iter(lines[::-1])) == alone[::-1]
    assert len(set(alone)) > 10  # the output depends on the source


@pytest.mark.parametrize(("window", "tokens"), [(1, 2048), (7, 11), (5, 61), (100, 61)])
def test_neither_windows_nor_batches_change_anything(
    window: int, tokens: int, two_best: list[list[Translation]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Arithmetic, "batch_tokens", tokens)
    some = translator()
    found = list(some.stream(LINES, n_best=2, window=window))
    for one, other in zip(found, two_best, strict=True):
        assert [t.text for t in one] == [t.text for t in other]
        assert [t.score for t in one] == pytest.approx([t.score for t in other], abs=1e-5)
    assert isinstance(some.model, Heard)
    slots = [batch.ids.numel() for batch in some.model.batches]
    rows = [len(batch.ids) for batch in some.model.batches]
    assert all(n <= tokens or r == 1 for n, r in zip(slots, rows, strict=True))


def test_batches_side_by_side_are_those_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arithmetic, "batch_tokens", 61)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            some = translator()
            found.append(some.translate(LINES))
            assert len(some.model.batches) > 3  # type: ignore[union-attr]
            assert threads_of_a_new_thread() == threads
            with pytest.raises(ValueError, match="not this batch"):
                monkeypatch.setattr(some.model, "start", _refuse)
                some.translate(LINES)
            assert threads_of_a_new_thread() == threads
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]


def of_a_gpu() -> Translator:
    """A translator that computes on the CPU as on a GPU: in small batches, two at a time."""
    some, by = translator(), Cuda(learning=False, streams=Streams(torch.device("cpu"), 2))
    by.batch_tokens = 61
    some.model.compute_by(by)  # type: ignore[union-attr]
    return some


def test_batches_in_streams_are_those_one_by_one(two_best: list[list[Translation]]) -> None:
    some = of_a_gpu()
    for _ in range(2):
        found = list(some.stream(LINES, n_best=2))
        for one, other in zip(found, two_best, strict=True):
            assert [t.text for t in one] == [t.text for t in other]
            assert [t.score for t in one] == pytest.approx([t.score for t in other], abs=1e-5)
    assert len(some.model.batches) > 6  # type: ignore[union-attr]


def test_tables_of_positions_are_made_before_streams_use_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some = of_a_gpu()
    embedding = some.model.embedding  # type: ignore[union-attr]
    embedding.positions = embedding.positions[:3]
    expected, table = translator().translate(LINES[:20]), []

    def start(model: Heard, source: Rows) -> DecoderState:
        table.append(model.embedding.positions)
        return Transformer.start(model, source)

    monkeypatch.setattr(Heard, "start", start)
    assert some.translate(LINES[:20]) == expected
    assert len(table) > 1
    assert all(one is embedding.positions for one in table)


@pytest.fixture
def three_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_cores")
def test_a_translator_translates_in_a_fork_of_its_process() -> None:
    """PyTorch would wait there for threads that a fork lacks."""
    made = translator(BRIEF.but(d_model=512, d_ff=2048))
    made.translate(LINES[:3])
    process = get_context("fork").Process(target=made.translate, args=(LINES[:3],))
    process.start()
    process.join(30)
    if process.exitcode is None:
        process.kill()
    assert process.exitcode == 0


@pytest.mark.usefixtures("three_cores")
@pytest.mark.parametrize("room", ["for all", "for no process", "for few bytes", "forbidden"])
def test_copies_of_the_process_find_the_same(room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arithmetic, "batch_tokens", 61)
    here, there = translator(), translator()
    expected = list(here.stream(LINES, n_best=2))
    monkeypatch.setattr(regard.decoding, "COPIES_FROM", 100)
    monkeypatch.setattr(regard.machine.copies, "_REST", 60.0)
    if room == "for no process":
        monkeypatch.setattr(os, "fork", _no_room)
    if room == "for few bytes":
        monkeypatch.setattr(regard.division, "free_bytes", lambda _: 2**31 - 1)
    there.may_be_copied = room != "forbidden"
    assert list(there.stream(LINES, n_best=2)) == expected
    assert len(here.model.batches) > 3  # type: ignore[union-attr]
    elsewhere = room == "for all"
    assert len(there.model.batches) == (0 if elsewhere else len(here.model.batches))  # type: ignore
    with pytest.raises(ValueError, match="not this batch"):
        monkeypatch.setattr(there.model, "start", _refuse)
        there.translate(LINES)
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_cores")
def test_no_copy_of_the_process_computes_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the plain arithmetic, too, which computes on any device."""
    expected = translator().translate(LINES)
    monkeypatch.setattr(regard.decoding, "computes_beside", lambda _: True)
    monkeypatch.setattr(regard.decoding, "COPIES_FROM", 100)
    monkeypatch.setattr(regard.division, "Copies", _refuse)
    assert translator().translate(LINES) == expected


@pytest.mark.usefixtures("three_cores")
@pytest.mark.parametrize(
    ("exact", "least", "loops"), [(False, 100, True), (None, 100, False), (False, 10**6, False)]
)
def test_copies_of_a_long_text_use_loops_unless_each_bit_counts(
    exact: bool | None,
    least: int,
    loops: bool,
    two_best: list[list[Translation]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Arithmetic, "batch_tokens", 61)
    monkeypatch.setattr(regard.decoding, "COPIES_FROM", 100)
    monkeypatch.setattr(regard.decoding, "LOOPS_FROM", least)
    monkeypatch.setattr(regard.machine.copies, "_REST", 60.0)
    some = translator()
    some.exact = exact
    for one, other in zip(some.stream(LINES, n_best=2), two_best, strict=True):
        assert [t.text for t in one] == [t.text for t in other]
        assert [t.score for t in one] == pytest.approx([t.score for t in other], abs=1e-5)
    assert can_use_loops()
    monkeypatch.setattr("regard.arithmetic.loops.search.rank_continuations", _refuse)
    with pytest.raises(ValueError, match="not this batch") if loops else nullcontext():
        some.translate(LINES)


@pytest.mark.usefixtures("three_cores")
def test_who_listens_is_told_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regard.decoding, "COPIES_FROM", 100)
    monkeypatch.setattr(regard.translation, "PARTIAL_SECONDS", 0.0)
    told: list[str] = []
    some = translator()
    found = [best[0].text for best in some.stream(LINES, on_partial={7: told.append})]
    assert told
    assert some.model.batches  # type: ignore[union-attr]
    assert found == translator().translate(LINES)


def _no_room() -> int:
    raise BlockingIOError("Resource temporarily unavailable")


def threads_of_a_new_thread() -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


@pytest.mark.parametrize("threads", [1, 2, 4, 5, 6, 7, 8, 11, 64])
def test_few_cores_are_left_over(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    workers = regard.division.usual_workers()
    assert 1 <= workers <= 4
    assert workers * (threads // workers) >= 0.8 * threads


def _refuse(*_: object) -> NoReturn:
    raise ValueError("not this batch")


def test_sentences_of_like_length_are_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arithmetic, "batch_tokens", 97)
    some = translator()
    some.translate(LINES)
    assert isinstance(some.model, Heard)
    assert sorted(some.model.sources) == sorted([*TOKENIZER.encode([s])[0], EOS] for s in LINES)
    padding = sum(int((batch.segments == 0).sum()) for batch in some.model.batches)
    assert padding < 0.2 * sum(batch.ids.numel() for batch in some.model.batches)


def test_blank_lines_stay_blank_in_their_places() -> None:
    lines = ["", LINES[0], " ", LINES[1], "\t\u3000", ""]
    texts = translator().translate(lines)
    first, second = translator().translate(LINES[:2])
    assert texts == ["", first, "", second, "", ""]
    assert list(translator().stream(["", " "], n_best=3)) == [[Translation("", 0.0)]] * 2
    assert translator().translate([]) == []


def test_a_line_of_which_the_tokenizer_keeps_nothing_is_blank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [first], encode = translator().translate(LINES[:1]), TOKENIZER.encode
    monkeypatch.setattr(
        TOKENIZER,
        "encode",
        lambda lines, side="source": encode([line.replace("\u200b", "") for line in lines]),
    )
    assert translator().translate(["\u200b", LINES[0]]) == ["", first]
    some = translator(longest=len(encode(LINES[:1])[0]))
    some.translate([f"{LINES[0]} {100 * chr(0x200B)}"], split=True)
    assert [EOS] not in some.model.sources  # type: ignore[union-attr]


def test_the_n_best_are_sorted_and_begin_with_the_best() -> None:
    best = translator().translate(LINES)
    for line, found in zip(best, translator().stream(LINES, n_best=4), strict=True):
        scores = [translation.score for translation in found]
        assert found[0].text == line
        assert scores == sorted(scores, reverse=True)
        assert scores[0] < 0
        assert 1 <= len(found) <= 4
    assert len(found) == 4


@pytest.mark.parametrize("window", [7, None])
def test_reading_is_never_more_than_a_window_ahead(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Arithmetic, "window", 5)
    together = window or 5
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for line in itertools.cycle(LINES):  # an endless input
            read += 1
            yield line

    stream = translator().stream(lines(), window=window)
    assert read == 0
    for done in range(1, 23):
        next(stream)
        assert read == -(-done // together) * together


def test_what_does_not_fit_the_memory_is_decoded_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    def scarce(model: Heard, source: Rows) -> DecoderState:
        if len(source.ids) > room:
            raise torch.OutOfMemoryError("out of memory")
        return Transformer.start(model, source)

    lines = LINES[::8]
    expected = translator().translate(lines)
    monkeypatch.setattr(Heard, "start", scarce)
    room = 2
    assert translator().translate(lines) == expected
    room = 1
    assert translator().translate(lines) == expected
    room = 0
    with pytest.raises(RegardError, match=r"pieces does not fit the memory with search\.beam = 4"):
        translator().translate(lines)


def test_what_does_not_fit_beside_other_batches_is_decoded_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The memory holds two sentences, or one beside another batch of one."""
    rows, lock = [], Lock()

    def scarce(model: Heard, source: Rows) -> DecoderState:
        with lock:
            rows.append(len(source.ids))
            full = sum(rows) > 2
        try:
            if full:
                raise torch.OutOfMemoryError("out of memory")
            time.sleep(0.01)
            return Transformer.start(model, source)
        finally:
            with lock:
                rows.remove(len(source.ids))

    lines = LINES[::4]
    expected = translator().translate(lines)
    some = of_a_gpu()
    monkeypatch.setattr(Heard, "start", scarce)
    assert some.translate(lines) == expected


def test_learned_positions_bound_the_output_instead_of_breaking_it() -> None:
    recipe = RECIPE.but(positions="learned", max_positions=31, max_length=31, max_extra=200)
    line = next(s for s in LINES if len(TOKENIZER.encode([s])[0]) > 15)
    [text] = translator(recipe, longest=31).translate([line])
    assert len(TOKENIZER.encode([text])[0]) <= 3 * 31  # U+FFFD is three bytes


def test_a_model_directory_is_loaded_as_it_was_written(tmp_path: Path) -> None:
    some = translator()
    write_model(
        tmp_path / "model", BRIEF, TOKENIZER, dict(some.model.named_parameters()), {"step": 1}
    )
    loaded = load(tmp_path / "model")
    assert loaded.translate(LINES) == some.translate(LINES)
    assert (loaded.recipe, loaded.longest) == (BRIEF.search, BRIEF.data.max_length)
    half = load(str(tmp_path / "model"), precision="bf16")
    assert next(half.model.parameters()).dtype == torch.bfloat16
    assert len(half.translate(LINES[:3])) == 3
    with record_attention(half.model) as recording:  # gradients are enabled here
        half.model(one_per_row([[5, 6, EOS]]), one_per_row([[BOS, 7]]))
    assert recording["cross"][0].shape[-2:] == (2, 3)
    [rounded], [exact] = (some.stream([LINES[0]]) for some in (load_int8(tmp_path), loaded))
    assert rounded[0].score == pytest.approx(exact[0].score, rel=0.1)
    assert rounded[0].score != exact[0].score
    with pytest.raises(ModelError, match="no such model directory"):
        load(tmp_path / "missing")


def load_int8(folder: Path) -> Translator:
    return load(folder / "model", precision="int8")


def test_a_model_in_training_is_not_made_to_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    some = translator()
    some.translate(LINES[:2])
    assert all(parameter.grad is None for parameter in some.model.parameters())


def test_an_unknown_precision_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="precision fp99: it is fp32, bf16, int8, auto or"):
        load(tmp_path, precision="fp99")


def test_windows_without_sentences_are_refused() -> None:
    with pytest.raises(ValueError, match="window = 0 is below 1"):
        next(translator().stream(LINES, window=0))


def test_a_text_is_not_a_list_of_sentences() -> None:
    with pytest.raises(TypeError, match="expected a list of sentences, not a str"):
        translator().translate("A text.")
    with pytest.raises(TypeError, match="expected a list of sentences, not a str"):
        translator().measure("A text.", split=True, where="text", numbers=range(99))


def test_there_are_as_many_numbers_as_sentences() -> None:
    with pytest.raises(ValueError, match="fewer numbers than sentences"):
        list(translator().stream(["1", "2"], numbers=[7]))


def test_half_a_character_is_named_by_its_sentence() -> None:
    with pytest.raises(DataError, match="sentence:3 has a lone surrogate"):
        list(translator().stream(["1", "2", "3 \ud83d"], window=2))
