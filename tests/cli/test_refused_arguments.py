"""A command line, a setting or a recipe file that says nothing regard knows."""

import re

import pytest

from cli.refusing import GOOD, World, refused, regard, unchanged


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("tran", "unknown command tran: did you mean train?"),
        ("Translate", "unknown command Translate: did you mean translate?"),
        (
            "--out runs/x train",
            "unknown option --out: options of a command are given after its name",
        ),
        ("train --otu runs/x", "unknown option --otu: did you mean --out?"),
        ("train", "missing option --out: see regard train --help"),
        ("prepare --out x --target y", "--source names 0 and --target 1 files: give them in pairs"),
        ("train --out=", "--out has no value: is the shell variable after it set?"),
        ("score x", "missing option --reference / -r: see regard score --help"),
        ("translate", "missing argument MODEL...: see regard translate --help"),
        ("average run --out", "option --out requires an argument: see regard average --help"),
        ("import hf x --out", "option --out requires an argument: see regard import hf --help"),
        ("train --set", "option --set requires an argument: see regard train --help"),
        ("translate --model m", "unknown option --model: it is one of --input, -i, --out, "),
        ("translate m --source s", "unknown option --source: it is one of --input, -i, --out, "),
        ("translate m --no-rety", "unknown option --no-rety: did you mean --no-retry?"),
        (
            "train --out x --source source.en --target target.de --recipe tiny",
            "unknown recipe tiny: it is one of small, small-parse, ",
        ),
        (
            "train --out x --source source.en --target target.de --recipe tiny",
            ", ...: see regard help recipes",
        ),
        ("translate m source.en", "text goes with -i source.en, or < source.en"),
        ("score source.en target.de", "a reference goes with --reference target.de; two files of"),
        ("look one two three", "got unexpected extra argument(s) (three): see regard look"),
        ("translate run --beam 0", "invalid value for --beam: "),
        ("translate run --beam many", "invalid value for --beam: "),
        ("translate run --beam 2.5", "invalid value for --beam: "),
        ("translate run --n-best 0", "invalid value for --n-best: "),
        ("translate run --alpha -1", "invalid value for --alpha: "),
        ("translate run --alpha nan", "invalid value for --alpha: "),
        ("translate run --threads -3", "invalid value for --threads: "),
        ("translate run --threads 9999", "--threads 9999: give up to 1024 cores, or 0 for all"),
        (
            "translate run --precision fp64",
            "precision fp64: it is fp32, bf16, int8, auto or",
        ),
        ("average run --out x --last 0", "invalid value for --last: "),
        ("average run --out x --steps 4 --last 3", "--steps 4: give numbers, such as 1000,2000, "),
        (f"average run --out x --steps {5000 * '9'}", "give numbers, such as 1000,2000, "),
        ("score --trees x y --tokenizer zh", "--tokenizer zh: it is for BLEU, which needs a --ref"),
        ("score x --model m -s y --tokenizer zh", "--tokenizer zh: it is for BLEU, which needs a"),
        ("look m dog --text --word dog", "--word dog: it is for --html, and Figures 3 and 4: leav"),
        ("look m dog --figure 5 --word dog", "--word dog: it is for --html, and Figures 3 and 4:"),
        ("look m dog --figure 1 --by-words", "--by-words: it is for --html, --text and Figures 3"),
        ("claims --list --json", "--list writes plain text: leave out --json and --markdown"),
        ("claims --list --markdown", "--list writes plain text: leave out --json and --markdown"),
        ("export onnx m --out x --text y", "--text: regard export onnx needs none: leave it out"),
        ("export hf m --out x --pair en-de", "--pair en-de: regard export hf needs none: leave it"),
        ("demo --pairs 7", "invalid value for --pairs: "),
        ("demo --pairs 99999999999", "invalid value for --pairs: "),
        ("score - -r -", "standard input: can be read only once: save it in a file first"),
        (
            "tune m --source - --reference -",
            "standard input: can be read only once: save it in a file first",
        ),
        ("train --out runs/x --source a --mix 1;2", "--mix 1;2: give whole numbers with commas"),
        ("train --out runs/x", "runs/x: nothing to train on yet: give --source and --target"),
        (
            "train --out runs/x --source a",
            "--source names 1 and --target 0 files: give them in pairs",
        ),
    ],
)
def test_a_command_line_that_cannot_be_understood(world: World, argv: str, said: str) -> None:
    with pytest.MonkeyPatch.context() as patch, unchanged(world.folder):
        patch.chdir(world.folder)
        assert said in refused(*argv.split())


@pytest.mark.parametrize("command", ["", "train", "import hf"])
def test_h_is_help(command: str) -> None:
    words = command.split()
    assert regard(*words, "-h") == regard(*words, "--help")
    assert regard(*words, "-h").status == 0


def test_a_folder_of_models_is_told_from_a_damaged_model(world: World) -> None:
    model = world.copy("model")
    said = refused("translate", world.folder)
    assert said.endswith(f"not a whole model or checkpoint: name a run, such as {model}")


def test_a_variable_that_is_not_set_is_no_folder(world: World) -> None:
    with unchanged(world.folder):
        said = refused("train", *world.text, "--out", "")
    assert said == "--out is followed by an empty argument: is that shell variable set?"


@pytest.mark.parametrize("option", ["--beam", "--n-best"])
def test_more_translations_than_hypotheses(world: World, option: str) -> None:
    more = ["--n-best", "3"] if option == "--n-best" else ["--beam", "1", "--n-best", "2"]
    said = refused("translate", world.made / "model", *more, stdin=GOOD.encode())
    assert re.fullmatch(r"--n-best \d is more than the beam of \d: .*--beam.*", said)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--beam", "1001", "search.beam: input should be less than or equal to 1000 (given: 1001)"),
        ("--alpha", "11", "search.alpha: input should be less than or equal to 10 (given: 11.0)"),
        ("--alpha", "inf", "search.alpha: input should be a finite number (given: inf)"),
    ],
)
def test_a_search_that_no_machine_could_do(
    world: World, option: str, value: str, said: str
) -> None:
    assert refused("translate", world.made / "model", option, value) == said


def test_a_file_name_cannot_write_to_the_terminal(world: World) -> None:
    said = refused("translate", world.made / "model", "-i", "\x1b[2Jno\nsuch\udcff")
    assert said == r"\x1b[2Jno such\udcff: no such file"


def test_prepared_data_beside_text(world: World) -> None:
    said = refused("train", "--data", world.made / "data", *world.text, *world.out)
    assert said.endswith("--source, --target, --trees and --tokenizer, or leave out --data")


@pytest.mark.parametrize("command", ["prepare", "train"])
@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("training.steps", "--set 'training.steps': write it as section.key=value"),
        ("steps=4", "--set 'steps=4': write it as section.key=value"),
        ("trainning.steps=4", "unknown section trainning: did you mean training?"),
        ("training.step=4", "unknown key training.step: did you mean training.steps?"),
        ("model.=4", "unknown key model.: it is one of model.family, "),
        ("training.source_tokens=4", "unknown key training.source_tokens: did you mean data.sou"),
        ("training.xyzzy=4", "unknown key training.xyzzy: it is one of training.steps, "),
        ("training.steps=many", "training.steps: input should be a valid integer (given: 'many')"),
        ("training.steps=4.5", "training.steps: input should be a valid integer (given: 4.5)"),
        ("training.steps=", "training.steps: input should be a valid integer (given: '')"),
        ("training.steps=0", "training.steps: input should be greater than or equal to 1"),
        ("training.steps=4\nx=1", "training.steps: input should be a valid integer"),
        (
            "model.layers=1001",
            "model.layers: input should be less than or equal to 1000 (given: 1001)",
        ),
        ("model.d_ff=2147483648", "model.d_ff: input should be less than 2147483648"),
        ("model.d_model=17", "model.d_model: input should be a multiple of 2 (given: 17)"),
        ("model.dropout=1.0", "model.dropout: input should be less than 1 (given: 1.0)"),
        ("search.alpha=inf", "search.alpha: input should be a finite number (given: inf)"),
        ("training.epsilon=nan", "training.epsilon: input should be "),
        ("tokenizer.kind=unigram", "tokenizer.kind: input should be 'bpe' or 'wordpiece'"),
        ("tokenizer.vocabulary=7", "tokenizer.vocabulary: input should be greater than or equal"),
        ("data.deduplicate=1", "data.deduplicate: input should be a valid boolean (given: 1)"),
        ("training.keep=2", "training: keep = 2 is less than average = 5: keep at least as many"),
        ("training.steps=" + "[" * 100_000, "training.steps: input should be a valid integer"),
        ("training.seed=" + "9" * 5000, "training.seed: input should be a valid integer"),
    ],
    ids=lambda text: text[:30],
)
def test_a_setting_that_no_recipe_takes(
    world: World, assignment: str, said: str, command: str
) -> None:
    with unchanged(world.folder):
        argv = [command, *world.text, *world.out, "--recipe", "base", "--set", assignment]
        assert refused(*argv).startswith(said)


RECIPES: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "cannot read the recipe: No such file or directory"),
    "empty of sense": (b"steps 4\n", "(at line 1, column 7)"),
    "not UTF-8": (b'base = "b\xffse"\n', "a recipe is UTF-8 text"),
    "binary": (b"\x00\x01\x02", "(at line 1, column 1)"),
    "unknown base": (b'base = "bass"\n', "unknown base recipe bass: did you mean base?"),
    "base of no text": (b"base = [1]\n", "unknown base recipe [1]: it is one of base, "),
    "unknown section": (b"[trainning]\n", "unknown section trainning: did you mean training?"),
    "unknown key": (b"[model]\nlayer = 2\n", "unknown key model.layer: did you mean model.layers?"),
    "a key for a section": (b"model = 2\n", "model is a section: write [model] and keys under it"),
    "ill-typed": (b'[model]\nlayers = "2"\n', "model.layers: input should be a valid integer"),
    "nested too deep": (b"x = " + b"[" * 10_000, "nested too deep: a recipe is sections of keys"),
    "too long": (b"# no recipe\n" * 10_000, "a recipe has at most 16,384 characters"),
    "an endless search": (
        b"[search]\nbeam = 1000\nmax_extra = 1000\n",
        "beam = 1000 times max_extra = 1000 is more than 100,000",
    ),
    "a huge number": (b"[model]\nlayers = " + b"9" * 5000, "integer string conversion"),
    "too few positions": (
        b'[model]\npositions = "learned"\nmax_positions = 100\n',
        "model.max_positions = 100 is less than data.max_length = 256: learn a position",
    ),
}


@pytest.mark.parametrize("command", ["prepare", "train"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_file_that_is_none(world: World, recipe: str, command: str) -> None:
    content, remedy = RECIPES[recipe]
    path = world.folder / "recipe.toml"
    if content is not None:
        path.write_bytes(content)
    with unchanged(world.folder):
        said = refused(command, *world.text, *world.out, "--recipe", path)
    assert said.startswith(f"{path}: ")
    assert remedy in said


def test_a_recipe_of_no_name(world: World) -> None:
    said = refused("train", *world.text, *world.out, "--recipe", "bsae")
    assert said == "unknown recipe bsae: did you mean base?"
