"""The figures of validation are right, and training goes on as if it had not happened."""

import math
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.arithmetic.choose import for_validation
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.inference import Inference
from regard.arithmetic.plain import Plain
from regard.arithmetic.products import Products
from regard.data.batches import Batch, Batches
from regard.data.pairs import Pairs
from regard.data.prepare import prepare_text
from regard.data.rows import one_per_row
from regard.equations import Arithmetic, Computing
from regard.errors import DataError, TrainingError
from regard.measure import validation
from regard.measure.validation import loss_and_accuracy, validator
from regard.recipe import Recipe
from regard.run.journal import read_journal
from regard.text.tokenizer import BOS, EOS, Tokenizer
from regard.transformer import Transformer
from regard.translation import Translator
from run.copying import RECIPE, prepared, strings, trained

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"), RECIPE.but(held_out=9))


def model_for(data: Path, recipe: Recipe = RECIPE) -> Transformer:
    torch.manual_seed(1)
    return Transformer(recipe.model, Tokenizer.load(data / "tokenizer.json").size)


@torch.no_grad()
def alone(model: Transformer, data: Path) -> float:
    """Cross-entropy per target sub-word by PyTorch, each pair alone."""
    model.eval()
    pairs = Pairs.open(data, "valid")
    total, tokens = 0.0, 0
    for i in range(len(pairs)):
        source, labels = pairs.source(i).tolist(), pairs.target(i).tolist()
        logits = model(one_per_row([source]), one_per_row([[BOS, *labels[:-1]]]))[0]
        total += float(F.cross_entropy(logits, torch.tensor(labels), reduction="sum"))
        tokens += len(labels)
    model.train()
    return total / tokens


@pytest.mark.parametrize("tokens", [61, 4001])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_perplexity_is_plain_and_per_sub_word(data: Path, tokens: int, smoothing: float) -> None:
    recipe = RECIPE.but(source_tokens=tokens, target_tokens=tokens, label_smoothing=smoothing)
    model = model_for(data)
    result = validator(data, recipe)(model)
    assert result["loss"] == pytest.approx(alone(model, data), rel=1e-5)
    assert result["perplexity"] == pytest.approx(math.exp(result["loss"]))


@pytest.mark.parametrize("at_once", [7, 1024])
@torch.no_grad()
def test_accuracy_is_how_often_the_reference_is_most_likely(
    data: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("regard.measure.validation.LABELS_AT_ONCE", at_once)
    model, pairs = model_for(data).eval(), Pairs.open(data, "valid")
    each = [(pairs.source(i).tolist(), pairs.target(i).tolist()) for i in range(len(pairs))]
    rows = [(one_per_row([x]), one_per_row([[BOS, *y[:-1]]]), torch.tensor(y)) for x, y in each]
    states = [model.decode(target, model.encode(source), source)[0] for source, target, _ in rows]
    model.embedding.tokens.weight[EOS] = torch.cat(states).mean(0)  # so that some are right
    right = sum(int((model(x, y)[0].argmax(-1) == labels).sum()) for x, y, labels in rows)
    tokens = sum(len(labels) for _, _, labels in rows)
    assert 0 < right < tokens
    found = validator(data, RECIPE)(model.train())["accuracy"]
    assert found == pytest.approx(100 * right / tokens)


def test_bleu_is_of_the_first_sentences_really_decoded(data: Path) -> None:
    recipe = RECIPE.but(validate_sentences=7)
    model = model_for(data)
    result = validator(data, recipe)(model)
    sources, references = (
        (data / f"valid.{side}.txt").read_text().splitlines()[:7] for side in ("source", "target")
    )
    tokenizer = Tokenizer.load(data / "tokenizer.json")
    outputs = Translator(model.eval(), tokenizer, recipe.search, 256).translate(sources)
    assert result["bleu"] == pytest.approx(sacrebleu.corpus_bleu(outputs, [references]).score)
    assert result["samples"] == [
        {"source": s, "output": o, "reference": r}
        for s, o, r in list(zip(sources, outputs, references, strict=True))[:2]
    ]


def test_without_sentences_nothing_is_decoded(data: Path) -> None:
    result = validator(data, RECIPE.but(validate_sentences=0))(model_for(data))
    assert result.keys() == {"loss", "perplexity", "accuracy"}


@pytest.mark.parametrize(("arithmetic", "expected"), [("auto", Inference), ("plain", Plain)])
def test_it_computes_by_an_arithmetic_of_its_own(
    data: Path, monkeypatch: pytest.MonkeyPatch, arithmetic: str, expected: type
) -> None:
    used: set[Arithmetic] = set()

    def listening(model: Transformer, *others: Any) -> tuple[float, float]:
        used.update(module.by for module in model.modules() if isinstance(module, Computing))
        return loss_and_accuracy(model, *others)

    monkeypatch.setattr("regard.measure.validation.loss_and_accuracy", listening)
    model, before = model_for(data), Cpu(Products())
    model.compute_by(before)
    validator(data, RECIPE.but(arithmetic=arithmetic, validate_sentences=0))(model)
    assert [type(by) for by in used] == [expected]
    assert {module.by for module in model.modules() if isinstance(module, Computing)} == {before}


def test_training_goes_on_as_if_there_had_been_none(data: Path) -> None:
    model = model_for(data).train()
    validate = validator(data, RECIPE)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    state = torch.get_rng_state()
    first = validate(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training for module in model.modules())
    assert all(p.grad is None and torch.equal(p, before[n]) for n, p in model.named_parameters())
    assert validate(model) == first  # and it says the same when asked again


def test_a_run_ends_the_same_however_often_it_validates(data: Path, tmp_path: Path) -> None:
    weights = {}
    for every in (1, 100):
        recipe = RECIPE.but(validate_every=every, steps=7)
        weights[every] = trained(tmp_path / str(every), data, recipe, validator(data, recipe))
    weights[0] = trained(tmp_path / "0", data, RECIPE.but(steps=7))
    for name, tensor in weights[0].items():
        assert torch.equal(weights[1][name], tensor)
        assert torch.equal(weights[100][name], tensor)
    records = read_journal(tmp_path / "1" / "journal.jsonl")
    assert [r["step"] for r in records if r["event"] == "validation"] == list(range(1, 8))


def test_a_pair_longer_than_any_batch_is_validated_on_too(tmp_path: Path) -> None:
    """Validation drops no sentence, so one may be longer than all that are trained on."""
    data = with_long_validation(tmp_path, 97)
    recipe = RECIPE.but(validate_sentences=2)
    model = model_for(data)
    result = validator(data, recipe)(model)
    assert result["loss"] == pytest.approx(alone(model, data), rel=1e-5)
    with model.eval().computing_by(for_validation(recipe.training, CPU, torch.float32)):
        found = loss_and_accuracy(model, Pairs.open(data, "valid"), recipe)
    assert found == (result["loss"], result["accuracy"])


def test_the_loss_is_that_of_every_pair_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more pairs than a window, the number of batches is an estimate."""
    data = with_long_validation(tmp_path, 97)
    recipe = RECIPE.but(validate_sentences=2)
    model, pairs = model_for(data).eval(), Pairs.open(data, "valid")
    whole = loss_and_accuracy(model, pairs, recipe)
    for window in (3, 7, 11):
        monkeypatch.setattr("regard.data.batches.WINDOW_PAIRS", window)
        assert loss_and_accuracy(model, pairs, recipe) == pytest.approx(whole, rel=1e-5)


def test_more_pieces_than_learned_positions_are_refused_before_training(tmp_path: Path) -> None:
    data = with_long_validation(tmp_path, 97)
    longest = int(Pairs.open(data, "valid").source_lengths.max())
    learned = RECIPE.but(positions="learned", max_length=31, max_positions=longest - 1)
    with pytest.raises(DataError, match=f"{longest} pieces.*model.max_positions = {longest - 1}"):
        validator(data, learned)
    enough = learned.but(max_positions=longest)
    validator(data, enough)(model_for(data, enough))


def test_joined_sentences_need_no_more_positions_than_one_has(tmp_path: Path) -> None:
    lines = strings(61, seed=5, longest=12)
    data = prepared(tmp_path, RECIPE.but(held_out=6), lines)
    longest = int(max(Pairs.open(data, split).source_lengths.max() for split in ("train", "valid")))
    learned = RECIPE.but(
        positions="learned", max_length=longest, max_positions=longest, source_tokens=2000,
        target_tokens=2000, validate_sentences=0,
    )  # fmt: skip
    widths = {
        batch.source.ids.shape[1]
        for batch in Batches(Pairs.open(data, "valid"), learned.data, 0, layout="grouped").take(2)
    }
    assert max(widths) > longest  # so that sentences do share rows
    model = model_for(data, learned)
    assert validator(data, learned)(model)["loss"] == pytest.approx(alone(model, data), rel=1e-5)
    trained(tmp_path / "run", data, learned.but(steps=2), validator(data, learned))


def with_long_validation(folder: Path, longest: int) -> Path:
    train, valid = folder / "train", folder / "valid"
    train.write_text("\n".join(strings(61, seed=1)), "utf-8")
    valid.write_text("\n".join(["3 1 4", " ".join("0123456789"[i % 10] for i in range(longest))]))
    prepare_text(
        [train], [train], folder / "data", RECIPE, valid_sources=[valid], valid_targets=[valid]
    )
    return folder / "data"


@pytest.mark.parametrize("most", [1, 2])
def test_a_batch_without_room_beside_training_is_measured_in_halves(
    data: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """CUDA graphs keep the memory that they were captured in."""
    recipe = RECIPE.but(source_tokens=4001, target_tokens=4001)
    model, pairs = model_for(data).eval(), Pairs.open(data, "valid")
    whole = loss_and_accuracy(model, pairs, recipe)
    sizes: list[int] = []
    at_once = validation._sums_at_once

    def short_of_memory(model: Transformer, batch: Batch) -> Tensor:
        sizes.append(len(batch.labels))
        if len(batch.labels) > most:
            raise torch.OutOfMemoryError("no room")
        return at_once(model, batch)

    monkeypatch.setattr(validation, "_sums_at_once", short_of_memory)
    assert loss_and_accuracy(model, pairs, recipe) == pytest.approx(whole, rel=1e-6)
    rows, parts = sizes[0], [size for size in sizes if size <= most]
    assert rows > most
    assert sum(parts) == rows


def test_a_pair_that_validation_has_no_memory_for_is_named(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(validation, "_sums_at_once", full)
    with pytest.raises(
        TrainingError, match=r"validation: a pair of \d+ \+ \d+ pieces does not fit"
    ):
        loss_and_accuracy(model_for(data), Pairs.open(data, "valid"), RECIPE)
