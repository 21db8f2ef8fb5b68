"""Every family learns through the public commands, resumes to the bit, and is searched."""

import json
import signal
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from cli.refusing import Result, regard
from families.modelling import OTHERS, gradients
from regard.data.batches import Batches
from regard.data.pairs import Pairs
from regard.data.rows import one_per_row
from regard.data.training_data import batches_of
from regard.families.choose import new_model
from regard.machine.interrupt import Interrupt, Interrupted
from regard.measure.validation import loss_and_accuracy, validator
from regard.recipe import Recipe
from regard.run.journal import Record
from regard.run.model_directory import open_model
from regard.steps import Whole
from regard.text.tokenizer import BOS
from regard.translation import Translator, load
from run.copying import RECIPE, prepared, strings, train_in_fork, trained

EVERY = pytest.mark.parametrize("family", OTHERS)
LAYERS = {"recurrent": 2, "convolutional": 2, "dilated": 5}


def recipe_of(family: str) -> Recipe:
    return RECIPE.but(family=family, layers=LAYERS[family], d_model=32, dropout=0.1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


@EVERY
def test_strings_are_copied_that_were_never_seen(family: str, tmp_path: Path) -> None:
    recipe = recipe_of(family).but(
        dropout=0.0, d_model=64, layers=LAYERS[family], steps=STEPS[family], warmup_steps=60,
        rate=0.7, source_tokens=512, target_tokens=512, save_every=10, validate_every=1000,
    )  # fmt: skip
    run, seen = tmp_path / "run", strings(2000, seed=1, longest=4)
    train_in_fork(run, prepared(tmp_path, recipe, seen), recipe)
    unseen = [string for string in strings(300, seed=2, longest=4) if string not in seen][:100]
    right = sum(a == b for a, b in zip(load(run).translate(unseen), unseen, strict=True))
    assert right >= 80


STEPS = {"recurrent": 200, "convolutional": 80, "dilated": 80}


@EVERY
def test_a_run_stopped_goes_on_as_if_it_had_not_been(
    family: str, data: Path, tmp_path: Path
) -> None:
    recipe = recipe_of(family)
    whole = trained(tmp_path / "whole", data, recipe, validator(data, recipe))
    interrupt = Interrupt()

    def ask(record: Record) -> None:
        if record["event"] == "step" and record["step"] == 4:
            interrupt.signum = signal.SIGTERM

    run, validate = tmp_path / "run", validator(data, recipe)
    with pytest.raises(Interrupted):
        trained(run, data, recipe, validate, interrupt=interrupt, listeners=(ask,))
    resumed = trained(run, data, recipe, validate)
    assert resumed.keys() == whole.keys()
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


@EVERY
def test_halves_of_a_batch_have_its_gradient(family: str, data: Path) -> None:
    recipe = recipe_of(family).but(dropout=0.0)
    model = new_model(recipe.model, 269)
    batch = Batches(Pairs.open(data, "train"), recipe.data, 1, layout="grouped").take(1)[0]
    found = []
    for parts in ([batch], batch.halves()):
        model.zero_grad()
        steps = Whole(model.sharing_weights(), 0.1)
        loss = torch.stack([steps.learn(part) for part in parts]).sum(0)
        found.append(gradients(model) | {"loss": loss})
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-3, atol=1e-4)


@EVERY
def test_a_row_holds_one_pair_in_training_and_in_validation(family: str, data: Path) -> None:
    """Otherwise an LSTM or a kernel carries one sentence into the next."""
    sizes = {"source_tokens": 397, "target_tokens": 397}
    recipe, pairs = recipe_of(family).but(dropout=0.0, **sizes), Pairs.open(data, "train")
    most = [
        max(int(batch.source.segments.max()) for batch in batches_of(pairs, one).rest_of_epoch())
        for one in (RECIPE.but(**sizes), recipe)
    ]
    assert most == [4, 1]
    model = new_model(recipe.model, 269).eval()
    total, tokens = 0.0, 0
    for i in range(len(pairs)):
        labels = torch.as_tensor(pairs.target(i).astype("int64"))
        source, read = pairs.source(i).tolist(), [BOS, *labels[:-1].tolist()]
        with torch.no_grad():
            logits = model(one_per_row([source]), one_per_row([read]))[0]
        total += float(cross_entropy(logits, labels, reduction="sum"))
        tokens += len(labels)
    assert loss_and_accuracy(model, pairs, recipe)[0] == pytest.approx(total / tokens, rel=1e-5)


@EVERY
def test_the_commands(family: str, data: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(recipe_of(family).to_toml(), "utf-8")
    run, model = tmp_path / "run", tmp_path / "model"

    def done(*argv: str | Path, stdin: bytes = b"") -> Result:
        result = regard(*argv, stdin=stdin)
        assert result.status == 0, result
        return result

    done("train", "-q", "--data", data, "--out", run, "--recipe", tmp_path / "recipe.toml")
    done("average", run, "--last", "2", "--out", model)
    for precision in ("fp32", "bf16", "int8"):
        out = done("translate", model, "--precision", precision, stdin=b"1 2 3\n4 5\n").stdout
        assert len(out.splitlines()) == 2
    aligned = regard("translate", model, "--alignments", stdin=b"1 2 3\n")
    if family == "dilated":
        assert "has no encoder-decoder attention to show them" in aligned.stderr
    else:
        written, _, pairs = aligned.stdout.partition(" ||| ")
        assert (aligned.status, bool(pairs.strip())) == (0, bool(written.strip()))
    exported = regard("export", "onnx", model, "--out", tmp_path / "onnx")
    assert (exported.status, (tmp_path / "onnx").exists()) == (2, False)
    assert f"is of the {family} family" in exported.stderr
    plan = done(
        "train",
        "--plan",
        "--data",
        data,
        "--out",
        tmp_path / "other",
        "--recipe",
        tmp_path / "recipe.toml",
    )
    assert "parameters" in plan.stdout + plan.stderr
    looked = regard(
        "look", model, "1 2 3", "--json", tmp_path / "look.json", "--html", tmp_path / "look.html"
    )
    if family == "dilated":
        assert looked.status == 2
        assert "no attention to look at" in looked.stderr
        return
    assert looked.status == 0, looked
    attention = json.loads((tmp_path / "look.json").read_text("utf-8"))["attention"]
    assert list(attention) == ["cross"]
    layers = LAYERS[family] if family == "convolutional" else 1
    assert len(attention["cross"]) == layers
    for head in attention["cross"][0][0]:
        assert sum(head) == pytest.approx(1, abs=1e-4)
    refused = regard("look", model, "1 2 3", "--kind", "encoder", "--text")
    assert refused.status == 2
    assert "no encoder attention" in refused.stderr


@EVERY
def test_a_sentence_translates_alone_as_in_a_batch(family: str, data: Path, tmp_path: Path) -> None:
    recipe, run = recipe_of(family).but(max_extra=15), tmp_path / "run"
    trained(run, data, recipe)
    lines = strings(9, seed=3)
    exact = load(run, exact=True)
    assert list(exact.stream(lines)) == [next(exact.stream([line])) for line in lines]
    model = open_model(run)
    plain = Translator(model.network, model.tokenizer, recipe.search, 61)
    together = load(run, run)
    assert together.translate(lines) == plain.translate(lines) == load(run).translate(lines)
