"""A model with another system's tokenizer, the whole way: tuned, translating, looked at, scored."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, trainers

import regard
from regard.corpus import example
from regard.data.pairs import Pairs
from regard.data.rows import one_per_row
from regard.errors import ModelError, RegardError, TrainingError
from regard.files.manifest import unseal
from regard.measure.facts import recipe_and_facts
from regard.measure.likelihood import likelihoods
from regard.measure.plan import plan
from regard.recipe import Recipe
from regard.run.averaging import average_run
from regard.run.model_directory import open_model, write_model
from regard.text.foreign import LibraryTokenizer, MosesTokenizer
from regard.text.foreign.base import ForeignTokenizer
from regard.text.opening import open_tokenizer
from regard.text.tokenizer import BOS, EOS, Tokenizer
from regard.transformer import Transformer
from regard.view.alignment import aligned
from regard.view.look import look_at

PAIRS = [example(1, i) for i in range(90)]
SOURCES, TARGETS = [p.source for p in PAIRS], [p.target for p in PAIRS]
RECIPE = Recipe().but(
    layers=1, d_model=16, d_ff=23, heads=2, steps=3, warmup_steps=2, precision="fp32", held_out=5,
    max_length=97, source_tokens=200, target_tokens=200, layout="grouped", validate_every=2,
    validate_sentences=2, save_every=2, max_extra=4, beam=2,
)  # fmt: skip


def library(lines: list[str], size: int, path: Path) -> Path:
    """A tokenizer.json of pieces that begin with ▁, learned from these lines."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    special = ["</s>", "<unk>", "<pad>", "<s>"]
    made.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    )
    made.save(str(path))
    return path


def apart(folder: Path) -> ForeignTokenizer[Any]:
    """Vocabularies of their own, of different sizes."""
    source = library(SOURCES, 150, folder / "source.json")
    return LibraryTokenizer.read(source, library(TARGETS, 200, folder / "target.json"))


def shared(folder: Path) -> ForeignTokenizer[Any]:
    """One vocabulary of words."""
    words = dict.fromkeys(w.strip(".,?") for line in SOURCES + TARGETS for w in line.split())
    names = ["</s>", "<unk>", *words, ".", ",", "?", "<pad>"]
    ids = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return MosesTokenizer.read(ids, specials=(-1, ids["<pad>"], 0), size=len(ids))


@dataclass
class Made:
    folder: Path
    tokenizer: ForeignTokenizer[Any]
    recipe: Recipe

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def run(self) -> Path:
        return self.folder / "run"


@pytest.fixture(scope="module", params=[apart, shared], ids=["apart", "shared"])
def made(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A model as an import writes it, text, and a run that begins with the model."""
    folder = tmp_path_factory.mktemp("foreign")
    tokenizer = request.param(folder)
    recipe = RECIPE if tokenizer.shared else RECIPE.but(embeddings="target")
    torch.manual_seed(1)
    weights = Transformer(recipe.model, tokenizer.size, tokenizer.source_size).state_dict()
    write_model(folder / "model", recipe, tokenizer, weights, {"step": 0})
    for name, lines in (("source", SOURCES), ("target", TARGETS)):
        (folder / name).write_text("".join(line + "\n" for line in lines), "utf-8")
    text = {name: folder / name for name in ("source", "target")}
    regard.train(**text, out=folder / "run", start_from=folder / "model")
    return Made(folder, tokenizer, recipe)


def test_the_model_has_the_original_files_in_its_manifest(made: Made) -> None:
    files = unseal(made.model)["files"]
    assert files.keys() >= made.tokenizer.files.keys()
    model = open_model(made.model)
    assert model.tokenizer.fingerprint == made.tokenizer.fingerprint
    assert len(model.network.embedding.tokens.weight) == made.tokenizer.source_size


def test_data_is_encoded_by_each_side(made: Made) -> None:
    data = made.run / "data"
    for split in ("train", "valid"):
        pairs = Pairs.open(data, split)
        sources = made.tokenizer.decode([pairs.source(i) for i in range(len(pairs))], "source")
        targets = made.tokenizer.decode([pairs.target(i) for i in range(len(pairs))])
        known = {(a, b) for a, b in zip(SOURCES, TARGETS, strict=True)}
        assert set(zip(sources, targets, strict=True)) <= known
    sizes = json.loads((data / "manifest.json").read_text("utf-8"))["tokenizer"]
    assert sizes["size"] == made.tokenizer.size
    assert sizes["source_size"] == made.tokenizer.source_size


def test_the_run_keeps_the_tokenizer(made: Made) -> None:
    folders = [made.run, made.run / "data", made.model]
    average_run(made.run, made.folder / "averaged", 1, print)
    for folder in [*folders, made.folder / "averaged"]:
        assert open_tokenizer(folder).fingerprint == made.tokenizer.fingerprint
    assert open_model(made.run).manifest["step"] == 3
    assert open_model(made.folder / "averaged").manifest["step"] == 3
    assert recipe_and_facts(made.run)[1].vocabulary == made.tokenizer.size


def test_training_and_planning_know_both_sizes(made: Made) -> None:
    found = plan(made.recipe, made.run / "data", made.folder / "another")
    assert sum(found.parameters) == open_model(made.model).network.parameter_count
    with pytest.raises(ModelError, match=r"data.subword_dropout needs one .*: set it to 0"):
        regard.train(
            data=made.run / "data", out=made.folder / "dropout", recipe=made.recipe,
            changes={"data.subword_dropout": 0.1},
        )  # fmt: skip


def test_translates_with_each_side(made: Made) -> None:
    translator = regard.load(made.model)
    found = translator.translate(SOURCES[:3])
    together = regard.load(made.model, made.run).translate(SOURCES[:3])
    assert all(isinstance(text, str) for text in [*found, *together])
    assert regard.load(made.model, made.model).translate(SOURCES[:3]) == found
    [best], *_ = translator.stream(SOURCES[:1])
    target = made.tokenizer.encode([best.text], "target")[0]
    [its] = likelihoods(translator, SOURCES[:1], [best.text])
    source = [*made.tokenizer.encode(SOURCES[:1])[0], EOS]
    rows = one_per_row([source]), one_per_row([[BOS, *target]])
    with torch.inference_mode():
        log_p = translator.network(*rows)[0].log_softmax(-1)
    expected = sum(float(p[i]) for p, i in zip(log_p, [*target, EOS], strict=True))
    assert its.log_probability == pytest.approx(expected, abs=1e-4)


def test_is_looked_at_by_the_names_of_each_side(made: Made) -> None:
    model = open_model(made.model)
    look = look_at(model, SOURCES[0], TARGETS[0], by_words=True)
    bare = [word.strip(".,?") for word in look.source[:-1]]
    assert [word for word in bare if word] == [w.strip(".,?") for w in SOURCES[0].split()]
    assert look.source[-1] == look.written[-1] == "</s>"
    pairs = aligned(
        model.network, model.tokenizer, SOURCES[0], TARGETS[0], model.recipe.data.max_length
    )
    assert {query for _, query in pairs} == set(range(len(TARGETS[0].split())))
    assert {key for key, _ in pairs} <= set(range(len(SOURCES[0].split())))


def test_models_of_another_tokenizer_do_not_fit(made: Made, tmp_path: Path) -> None:
    ours = Tokenizer.learn(SOURCES, "bpe", 300)
    weights = Transformer(RECIPE.model, ours.size).state_dict()
    write_model(tmp_path / "ours", RECIPE, ours, weights, {})
    with pytest.raises(ModelError, match="has another tokenizer than"):
        regard.load(made.model, tmp_path / "ours")
    with pytest.raises(RegardError, match="has a tokenizer of its own"):
        regard.train(
            source=made.folder / "source", target=made.folder / "target", out=tmp_path / "run",
            start_from=tmp_path / "ours", tokenizer=made.model / "tokenizer.json",
        )  # fmt: skip


def test_a_parser_needs_symbols(made: Made, tmp_path: Path) -> None:
    (tmp_path / "trees").write_text("(S (NP (PRP I)) (VP (VBP sleep)))\n" * 20, "utf-8")
    with pytest.raises(ModelError, match=r"a parser needs one that regard learned"):
        regard.prepare(
            trees=tmp_path / "trees", out=tmp_path / "data", tokenizer=made.model,
            changes={"task.output": "trees"},
        )  # fmt: skip


def test_one_matrix_does_not_serve_two_vocabularies(made: Made, tmp_path: Path) -> None:
    if made.tokenizer.shared:
        pytest.skip("there is one vocabulary")
    with pytest.raises(TrainingError, match='set it to "target" or "apart"'):
        regard.train(data=made.run / "data", out=tmp_path / "run", recipe=RECIPE)
    weights = Transformer(RECIPE.model, made.tokenizer.size).state_dict()
    write_model(tmp_path / "model", RECIPE, made.tokenizer, weights, {})
    with pytest.raises(ModelError, match='set it to "target" or "apart"'):
        open_model(tmp_path / "model")


def damaged(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder


def test_damaged_files_beside_the_tokenizer_are_refused(made: Made, tmp_path: Path) -> None:
    made.tokenizer.save(tmp_path / "tokenizer.json")
    whole = (tmp_path / "tokenizer.json").read_bytes()
    content = json.loads(whole)
    name = next(iter(made.tokenizer.files))
    for change, problem in (
        ({"kind": "magic"}, "this version of regard reads sentencepiece, moses, library"),
        ({"kind": ["moses"]}, "this version of regard reads sentencepiece, moses, library"),
        ({"files": {"../" + name: "0"}}, "lists other files than a tokenizer of this kind has"),
        ({"files": {}}, "lists other files"),
        ({"order": {"size": -1, "specials": [0, 1, 2]}}, "order.size: Input should be greater"),
        ({"order": {"size": 10**9, "specials": [0, 1, 2]}}, "order.size: Input should be less"),
        ({"order": {"size": 400, "specials": [0, 1, -7]}}, "a special symbol has id -7"),
        ({"order": {"size": 400, "specials": [-1, 2, 2]}}, "two special symbols have the id 2"),
        ({"settings": {"command": "rm"}}, "command: Extra inputs are not permitted"),
        ({"extra": 1}, "extra: Extra inputs are not permitted"),
        ({"files": content["files"] | {name: "0" * 64}}, "its checksum does not match"),
    ):
        changed = json.dumps(content | change).encode()
        with pytest.raises(ModelError, match=problem):
            open_tokenizer(damaged(tmp_path, "tokenizer.json", changed))
    damaged(tmp_path, "tokenizer.json", whole)
    with pytest.raises(ModelError, match="its checksum does not match"):
        open_tokenizer(damaged(tmp_path, name, b"{}"))
    (tmp_path / name).unlink()
    with pytest.raises(ModelError, match="cannot read the tokenizer: No such file"):
        open_tokenizer(tmp_path)
    (tmp_path / name).symlink_to(made.model / name)
    with pytest.raises(ModelError, match="is a symbolic link"):
        open_tokenizer(tmp_path)
