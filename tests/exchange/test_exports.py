"""What is exported loads elsewhere, computes the same, or is refused by name."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from engines.exported_models import SHAPES, TOKENIZER, untrained
from exchange.brief import brief_certificates  # noqa: F401
from regard.data.rows import one_per_row
from regard.errors import DataError, ModelError, RecipeError, RegardError
from regard.exchange import certificate as certificates
from regard.exchange.certificate import Certificate
from regard.exchange.exporting import write_export
from regard.exchange.foreign import NotRunError
from regard.exchange.from_hf import read_hf
from regard.exchange.from_own_hf import is_own
from regard.exchange.hf_text import write_text_files
from regard.exchange.importing import write_imported
from regard.exchange.info import info_of
from regard.exchange.spm import refuse_other_cuts, sentence_pieces
from regard.exchange.texts import SpecialNames, Texts, tokenizer_of
from regard.exchange.vocabulary import entry_names, unknown_name
from regard.files.manifest import unseal
from regard.run.model_directory import open_model, write_model
from regard.text.foreign import SentencePieceTokenizer
from regard.text.tokenizer import EOS, Tokenizer
from regard.translation import load
from run.copying import RECIPE, strings

MARIAN = [name for name in SHAPES if name in ("paper", "marian", "unscaled")]
ARGOS = os.environ.get("REGARD_ARGOS")
pytestmark = pytest.mark.usefixtures("brief_certificates")


@pytest.mark.parametrize("shape", MARIAN)
def test_hugging_face_opens_it_as_anybody_would(shape: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    recipe = SHAPES[shape].but(norm_epsilon=1e-5)
    model = open_model(untrained(tmp_path / "model", recipe))
    certificate = write_export("hf", tmp_path / "model", tmp_path / "hf")
    assert certificate.encoded == certificate.greedy == certificate.searched == 1
    assert certificate.difference < 1e-5 * certificate.range
    assert unseal(tmp_path / "hf")["exported"] == "hf"
    opened = transformers.MarianMTModel.from_pretrained(tmp_path / "hf")
    opened.save_pretrained(tmp_path / "again")  # nothing is lost, such as a table of positions
    again = transformers.MarianMTModel.from_pretrained(tmp_path / "again").eval()
    source, target = [5, 9, 7, EOS], [1, 8, 4]
    with torch.inference_mode():
        ours = model.network(one_per_row([source]), one_per_row([target]))
        ids = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([target])}
        assert torch.allclose(again(**ids).logits, ours, atol=1e-4)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    for line in [*strings(5, seed=4), "a  b </s> \u00fc \U0001f600"]:
        assert tokenizer(line).input_ids == [*model.tokenizer.encode([line])[0], EOS]
        assert tokenizer.decode(tokenizer(line).input_ids, skip_special_tokens=True) == line


def test_the_model_card_has_scores_differences_and_the_recipe(tmp_path: Path) -> None:
    untrained(tmp_path / "model")
    write_export("hf", tmp_path / "model", tmp_path / "hf", changes=["search.alpha=0.3"])
    card = (tmp_path / "hf" / "README.md").read_text("utf-8")
    assert "((5 + n) / 6)^0.3" in card
    assert RECIPE.but(alpha=0.3).to_toml() in card
    generation = json.loads((tmp_path / "hf" / "generation_config.json").read_text("utf-8"))
    assert generation["length_penalty"] == 0.3
    assert generation["num_beams"] == RECIPE.search.beam
    assert "No scores are recorded with the model." in card
    about = {"last_validation": {"step": 1200, "bleu": 31.5, "perplexity": 5.25}}
    model = open_model(tmp_path / "model")
    weights = {name: weight.detach() for name, weight in model.network.named_parameters()}
    write_model(tmp_path / "run", model.recipe, model.tokenizer, weights, about)
    write_export("hf", tmp_path / "run", tmp_path / "scored")
    card = (tmp_path / "scored" / "README.md").read_text("utf-8")
    assert "| on the validation set, after step 1,200 of the training | |" in card
    assert "| BLEU | 31.50 |" in card


@pytest.mark.parametrize(
    ("format_", "fields", "problem"),
    [
        ("hf", {"norm": "pre"}, r"model\.norm = pre: MarianMTModel has no such thing"),
        ("hf", {"positions": "learned", "max_positions": 300}, r"model\.positions = learned"),
        ("hf", {"d_k": 4}, r"model\.d_k or d_v"),
        ("hf", {"residual": False}, r"model\.residual = false"),
        ("ctranslate2", {"score": "additive"}, r"model\.score = additive: CTranslate2"),
        ("ctranslate2", {"d_v": 4}, r"model\.d_v = 4"),
        ("ctranslate2", {"residual": False}, r"model\.residual = false"),
        ("hf", {"causal": False}, r"model\.causal = false is not in any export format"),
        ("onnx", {"output": "trees"}, "is a parser"),
    ],
)
def test_what_a_format_lacks_is_refused_by_name(
    format_: str, fields: dict[str, object], problem: str, tmp_path: Path
) -> None:
    untrained(tmp_path / "model", RECIPE.but(**fields))
    with pytest.raises(ModelError, match=problem):
        write_export(format_, tmp_path / "model", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"format": "tf"}, "unknown format tf"),
        ({"precision": "int4"}, "unknown precision int4"),
        ({"precision": "int8"}, "--precision int8: regard export onnx writes fp32"),
        ({"changes": ["model.layers=1"]}, "--set model.layers=1: an export can change only"),
        ({"changes": ["search.beam=0"]}, "search.beam"),
        ({"format": "argos", "pair": "en"}, "twice"),
    ],
)
def test_options_that_do_not_fit(
    arguments: dict[str, object], problem: str, tmp_path: Path
) -> None:
    untrained(tmp_path / "model")
    given = {"format": "onnx", "directory": tmp_path / "model", "out": tmp_path / "out"}
    with pytest.raises(RecipeError, match=problem):
        write_export(**(given | arguments))  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    untrained(tmp_path / "model")
    with pytest.raises(RegardError, match="exists already"):
        write_export("onnx", tmp_path / "model", tmp_path / "model")
    assert open_model(tmp_path / "model")


def test_the_loop_beside_the_graphs_needs_nothing_of_regard(tmp_path: Path) -> None:
    untrained(tmp_path / "model")
    write_export("onnx", tmp_path / "model", tmp_path / "onnx")
    graph = onnx.load(tmp_path / "onnx" / "decoder.onnx")
    assert [opset.version for opset in graph.opset_import] == [17]
    translator = load(tmp_path / "model")
    translator.recipe = translator.recipe.but(beam=1, max_extra=50)
    [line] = strings(1, seed=3)
    [ids] = translator.tokenizer.encode([line])
    script = tmp_path / "onnx" / "translate_ids.py"
    command = [sys.executable, "-I", str(script), *map(str, [*ids, EOS])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    written = [int(i) for i in done.stdout.split()]
    assert translator.tokenizer.decode([written]) == translator.translate([line])
    refused = subprocess.run([*command[:3]], capture_output=True, text=True, check=False)
    assert "usage" in refused.stderr


def test_sentencepiece_cuts_as_our_merges_do() -> None:
    learnt = ["The way goes  over the river.", "over and over", "a way away", *strings(20, 5)]
    tokenizer = Tokenizer.learn(learnt * 3, "bpe", 330)
    pieces = sentence_pieces(tokenizer)
    assert len(set(pieces.names)) == tokenizer.size
    unseen = ["x\ty \U0001f600 \u00e9", "</s> <0x41> <unk>", " two  spaces ", "wayway", ""]
    refuse_other_cuts(pieces, tokenizer, [*learnt, *unseen])
    with pytest.raises(ModelError, match=r"line 1 of the text: .* join .* as 'file name'"):
        refuse_other_cuts(pieces, tokenizer, ["file_name"])
    bytes_only = Tokenizer.learn(learnt, "bpe", 259)
    refuse_other_cuts(sentence_pieces(bytes_only), bytes_only, [*learnt, *unseen])
    with pytest.raises(ModelError, match="wordpiece"):
        sentence_pieces(Tokenizer.learn(learnt, "wordpiece", 600))


def argos_package(tmp_path: Path) -> tuple[Path, Certificate]:
    untrained(tmp_path / "model")
    text = tmp_path / "text"
    text.write_text("\n".join(strings(30, seed=6)) + "\n", encoding="utf-8")
    out = tmp_path / "made" / "en_de.argosmodel"
    given = {"pair": "en-de", "text": [text, text]}
    return out, write_export("argos", tmp_path / "model", out, **given)  # type: ignore[arg-type]


def test_a_package_of_argos_translate(tmp_path: Path) -> None:
    out, certificate = argos_package(tmp_path)
    assert certificate.encoded == certificate.greedy == 1
    with zipfile.ZipFile(out) as package:
        names = set(package.namelist())
        top = "translate-en_de-1_0"
        assert {f"{top}/{n}" for n in ("metadata.json", "sentencepiece.model")} <= names
        assert {f"{top}/model/{n}" for n in ("model.bin", "config.json")} <= names
        about = json.loads(package.read(f"{top}/metadata.json"))
        assert (about["from_code"], about["argos_version"]) == ("en", "1.11")
        card = package.read(f"{top}/README.md").decode()
        assert "install_from_path" in card and '"en", "de"' in card and "MarianMTModel" not in card


def test_text_that_is_cut_otherwise_is_refused(tmp_path: Path) -> None:
    untrained(tmp_path / "model")
    text = tmp_path / "text"
    text.write_text("1 2\n▁3\n", encoding="utf-8")  # SentencePiece's own space
    with pytest.raises(ModelError, match="line 2 of the text"):
        write_export(
            "argos", tmp_path / "model", tmp_path / "x.argosmodel", pair="en-de", text=[text, text]
        )
    assert not list(tmp_path.glob("*.argosmodel"))


@pytest.mark.parametrize("content", ["", "\ufeff", " \n\n"])
def test_a_file_without_text_proves_nothing(content: str, tmp_path: Path) -> None:
    untrained(tmp_path / "model")
    text, empty, out = tmp_path / "text", tmp_path / "empty", tmp_path / "x.argosmodel"
    text.write_text("1 2\n", encoding="utf-8")
    empty.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match="empty: has no text"):
        write_export("argos", tmp_path / "model", out, pair="en-de", text=[text, empty])
    assert not out.exists()


def test_what_the_vocabulary_lacks_is_the_unknown_piece_there_too(tmp_path: Path) -> None:
    (tmp_path / "source.spm").write_bytes(sentence_pieces(TOKENIZER).model)
    tokenizer = SentencePieceTokenizer.read(tmp_path / "source.spm")
    untrained(tmp_path / "model", tokenizer=tokenizer)
    text, out = tmp_path / "text", tmp_path / "en_de.argosmodel"
    text.write_text("1 2 3\n", encoding="utf-8")
    write_export("argos", tmp_path / "model", out, pair="en-de", text=[text, text])
    with zipfile.ZipFile(out) as package:
        config = json.loads(package.read("translate-en_de-1_0/model/config.json"))
    assert config["unk_token"] == "<unk>"
    assert unknown_name(TOKENIZER, entry_names(TOKENIZER, "target")) == "<pad>"


def test_marians_tokenizer_opens_no_other_kind(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    for side in ("source", "target"):
        (tmp_path / f"{side}.spm").write_bytes(sentence_pieces(TOKENIZER).model)
    cutters = [tmp_path / "source.spm", tmp_path / "target.spm"]
    known = ["<unk>", "<pad>", "<s>", "</s>", ">>de<<", *TOKENIZER.entries[EOS + 1 :]]
    (tmp_path / "v.txt").write_text("".join(f"{piece}\n" for piece in known), "utf-8")
    for used, restricted, opens in ((2, False, True), (2, True, False), (1, False, False)):
        texts, names = Texts([tmp_path / "v.txt"], cutters[:used]), SpecialNames("<pad>", "<s>")
        ours = tokenizer_of(texts, (len(known),) * 2, names, restricted=restricted)
        folder = tmp_path / f"{used} {restricted}"
        folder.mkdir()
        if not opens:
            with pytest.raises(ModelError, match="kind sentencepiece: export hf writes"):
                write_text_files(ours, 64, folder)
            continue
        write_text_files(ours, 64, folder)
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        ids = [ours.order.foreign_ids[i] for i in [*ours.encode([">>de<< 12"])[0], EOS]]
        assert theirs(">>de<< 12").input_ids == ids


ARGOS_SCRIPT = """
import sys
from argostranslate import package, settings, translate
package.install_from_path(sys.argv[1])
[found] = [p for p in package.get_installed_packages() if p.from_code == "en"]
languages = {language.code: language for language in translate.get_installed_languages()}
translation = languages["en"].get_translation(languages["de"])
inner = getattr(translation, "underlying", translation)
inner.sentencizer.split_sentences = lambda text: [text]  # its model would be downloaded
for line in sys.stdin.read().splitlines():
    print(translation.hypotheses(line, 1)[0].value)
"""


@pytest.mark.skipif(not ARGOS, reason="set REGARD_ARGOS to a Python that has argostranslate")
def test_argos_translate_installs_the_package(tmp_path: Path) -> None:
    out, _ = argos_package(tmp_path)
    lines = strings(4, seed=8)
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [str(ARGOS), "-c", ARGOS_SCRIPT, str(out)],
        input="\n".join(lines), env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(lines)


@pytest.mark.parametrize("embeddings", ["shared", "target", "inputs", "apart"])
def test_what_was_exported_is_read_back_to_the_same_bits(embeddings: str, tmp_path: Path) -> None:
    recipe = RECIPE.but(embeddings=embeddings, output_bias=True, score="dot", heads=1)
    model = open_model(untrained(tmp_path / "model", recipe))
    write_export("hf", tmp_path / "model", tmp_path / "hf")
    assert is_own(tmp_path / "hf") and not is_own(tmp_path / "model")
    with pytest.raises(
        ModelError, match=r"exported for hf: name .* or read it back with regard imp"
    ):
        open_model(tmp_path / "hf")
    certificate = write_imported(tmp_path / "again", read_hf(tmp_path / "hf"))
    assert certificate.not_run or certificate.greedy == certificate.searched == 1
    again = open_model(tmp_path / "again")
    assert again.recipe == model.recipe
    assert again.tokenizer.fingerprint == model.tokenizer.fingerprint
    ours, theirs = (dict(its.network.named_parameters()) for its in (model, again))
    assert all(torch.equal(theirs[name], ours[name]) for name in ours)
    (tmp_path / "hf" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelError, match="damaged"):
        read_hf(tmp_path / "hf")
    (tmp_path / "hf" / "recipe.toml").rename(tmp_path / "recipe.toml")
    (tmp_path / "hf" / "recipe.toml").symlink_to(tmp_path / "recipe.toml")
    with pytest.raises(ModelError, match=r"recipe\.toml: cannot be read: is a symbolic link"):
        read_hf(tmp_path / "hf")


def test_what_was_trained_further_elsewhere_is_read_back_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file, save_file

    monkeypatch.setattr(certificates, "WRITTEN", 4)
    recipe = RECIPE.but(embeddings="inputs", norm_epsilon=1e-5)
    untrained(tmp_path / "model", recipe)
    write_export("hf", tmp_path / "model", tmp_path / "hf")
    path, source = tmp_path / "hf" / "model.safetensors", "model.encoder.embed_tokens.weight"
    written = load_file(path)
    trained = {name: written[name] + 1 for name in (source, "final_logits_bias")}
    halves = {name: values.half() for name, values in (written | trained).items()}
    save_file(halves, path, {"format": "pt"})
    foreign = read_hf(tmp_path / "hf")
    assert foreign.recipe == recipe.but(embeddings="apart", output_bias=True)
    certificate = write_imported(tmp_path / "again", foreign)
    assert certificate.not_run or certificate.greedy == certificate.searched == 1
    for changed, problem in [
        ({"lm_head.bias": torch.zeros(3)}, r"has lm_head\.bias"),
        ({source: written[source][1:]}, rf"{source} is \[\d+, 16\]"),
        ({source: written[source] * torch.nan}, f"{source} has NaN"),
    ]:
        save_file(written | changed, path)
        with pytest.raises(ModelError, match=problem):
            read_hf(tmp_path / "hf")
    save_file(written, path)
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / "hf" / name).unlink()
        with pytest.raises(NotRunError):
            read_hf(tmp_path / "hf").side()


def test_rows_are_permuted_exactly(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    model = open_model(untrained(tmp_path / "model"))
    write_export("hf", tmp_path / "model", tmp_path / "hf")
    theirs = load_file(tmp_path / "hf" / "model.safetensors")["model.shared.weight"]
    ours = model.network.embedding.tokens.weight.detach().numpy()
    assert np.array_equal(np.sort(theirs, axis=1), np.sort(ours, axis=1))
    assert np.array_equal(theirs[:, 1], ours[:, 2])
    assert len(theirs) == TOKENIZER.size == info_of(tmp_path / "hf")["vocabulary"]
