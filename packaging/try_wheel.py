"""Install a wheel into an empty environment, by itself and with each extra, and try what it is for.

    python3 packaging/try_wheel.py dist/*.whl
    python3 packaging/try_wheel.py dist/*.whl --only serve

Each environment is made in a temporary folder and removed. The packages are downloaded, in the
versions of constraints.txt. A failure ends with the output of what failed, and status 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path
from urllib.request import Request, urlopen

ROOT = Path(__file__).parents[1]
SMALL = [
    argument
    for assignment in (
        *("model.layers=1", "model.d_model=16", "model.d_ff=32", "model.heads=2"),
        *("tokenizer.vocabulary=400", "training.steps=4", "training.validate_sentences=2"),
        "search.max_extra=5",
    )
    for argument in ("--set", assignment)
]
CORPUS = """
from pathlib import Path
from regard.corpus import example, write_corpus
write_corpus(Path("train"), seed=1, sentences=300)
trees = "".join(f"( {example(1, i).tree})\\n" for i in range(60))
Path("trees.mrg").write_text(trees, encoding="utf-8")
"""


class Environment:
    """An empty environment with the wheel and perhaps an extra, and a folder to work in."""

    def __init__(self, folder: Path, wheel: Path, extra: str):
        self.bin, self.work = folder / "env" / "bin", folder / "work"
        self.work.mkdir()
        venv.create(folder / "env", with_pip=True)
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        pins = ["--constraint", ROOT / "constraints.txt"]
        self.run("python", "-m", "pip", "install", "--quiet", wanted, *pins)
        self.run("python", "-m", "pip", "check")

    @property
    def variables(self) -> dict[str, str]:
        """The variables of this process without those that lead to other packages."""
        rest = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
        return rest | {"OMP_NUM_THREADS": "1", "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def run(self, program: str, *arguments: str | Path, status: int = 0, given: str = "") -> str:
        """Run a program of the environment, and give what it prints, on both streams."""
        done = subprocess.run(
            [self.bin / program, *map(str, arguments)],
            cwd=self.work,
            env=self.variables,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1800,
        )
        if done.returncode != status:
            command = " ".join(map(str, [program, *arguments]))
            sys.exit(f"{command}: status {done.returncode}, not {status}\n{done.stdout}")
        return done.stdout

    def regard(self, *arguments: str | Path, status: int = 0, given: str = "") -> str:
        """Run the command `regard`."""
        return self.run("regard", *arguments, status=status, given=given)


def expect(said: str, part: str) -> None:
    """End with status 1 unless `part` is in what was said."""
    if part not in said:
        sys.exit(f"{part!r} is not in:\n{said}")


def train(here: Environment, *options: str) -> None:
    here.run("python", "-c", CORPUS)
    text = ["--source", "train.en", "--target", "train.de"]
    here.regard("train", "-q", *text, "--recipe", "small", *SMALL, "--out", "run", *options)


def base(here: Environment) -> None:
    """Without extras: the first commands of the README; what needs an extra says so."""
    train(here)
    expect(here.regard("help", "time"), "# The best model for the time at hand")
    (here.work / "out").write_text(here.regard("translate", "run", given="the dog\n"), "utf-8")
    here.regard("look", "run", "The dog sleeps.")
    expect((here.work / "look.html").read_text("utf-8"), "<html")
    expect(here.regard("score", "train.de", "--reference", "train.de"), "100")
    for command, extra in (
        (["serve", "run=en-de"], "serve"),
        (["look", "run", "--figure", "1"], "view"),
        (["train", "--out", "run", "--board"], "board"),
        (["score", "train.de", "--reference", "train.de", "--tokenizer", "ko-mecab"], "ko"),
    ):
        expect(here.regard(*command, status=2), f"pip install 'regard[{extra}]'")


def bench(here: Environment) -> None:
    here.run("python", ROOT / "benchmarks" / "plots.py", "--help")


def board(here: Environment) -> None:
    train(here, "--board")
    if not list((here.work / "run").rglob("events.out.tfevents.*")):
        sys.exit("regard train --board has written no events")


def exchange(here: Environment) -> None:
    train(here, "--set", "search.finish=beam")
    ours = here.regard("translate", "run", "--no-retry", given="the dog\n")
    for engine in ("ctranslate2", "onnx"):
        here.regard("export", engine, "run", "--out", engine)
        theirs = ["translate", engine, "--engine", engine, "--no-retry"]
        expect(here.regard(*theirs, given="the dog\n"), ours.strip())
    here.regard("export", "hf", "run", "--out", "published")
    here.regard("import", "hf", "published", "--out", "back")
    expect(here.regard("info", "back"), "imported")
    expect(here.regard("translate", "back", "--no-retry", given="the dog\n"), ours.strip())


def words(language: str) -> Callable[[Environment], None]:
    def tried(here: Environment) -> None:
        here.run("python", "-c", CORPUS)
        same = ["train.de", "--reference", "train.de"]
        expect(here.regard("score", *same, "--tokenizer", f"{language}-mecab"), "100")

    return tried


def parse(here: Environment) -> None:
    here.run("python", "-c", CORPUS)
    trees = ["--task", "parse", "--trees", "trees.mrg", "--valid-trees", "trees.mrg"]
    here.regard("train", "-q", *trees, "--recipe", "small-parse", *SMALL, "--out", "run")
    expect(here.regard("parse", "run", given="The dog doesn't bark.\n"), "(")


def serve(here: Environment) -> None:
    train(here)
    command = [here.bin / "regard", "serve", "run=en-de", "--port", "0", "--quiet"]
    with subprocess.Popen(
        command, cwd=here.work, env=here.variables, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        address = server.stdout.readline().strip()
        with urlopen(f"{address}/health", timeout=60) as answer:
            expect(answer.read().decode(), "ok")
        with urlopen(address, timeout=60) as answer:
            expect(answer.read().decode(), "<html")
        body = json.dumps({"q": "the dog", "source": "en", "target": "de"}).encode()
        asked = Request(f"{address}/translate", body, {"Content-Type": "application/json"})
        with urlopen(asked, timeout=60) as answer:
            expect(answer.read().decode(), "translatedText")
        server.terminate()
        if server.wait(60):
            sys.exit(f"regard serve ended with status {server.returncode} after SIGTERM")


def view(here: Environment) -> None:
    train(here)
    here.regard("look", "run", "--figure", "1", "--out", "figure.svg")
    expect((here.work / "figure.svg").read_text("utf-8"), "<svg")


TRIALS: dict[str, Callable[[Environment], None]] = {
    "": base,
    "bench": bench,
    "board": board,
    "exchange": exchange,
    "ja": words("ja"),
    "ko": words("ko"),
    "parse": parse,
    "serve": serve,
    "view": view,
}
"""What is tried with each extra, and without any."""


def extras(wheel: Path) -> list[str]:
    """The extras that a wheel offers, but `dev`: `make setup` and `make test` try it."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (n for n in opened.namelist() if n.endswith(".dist-info/METADATA"))
        found = Parser().parsestr(opened.read(name).decode()).get_all("Provides-Extra") or []
    return [extra for extra in found if extra != "dev"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument(
        "--only", action="append", metavar="EXTRA", help="base: the wheel without extras"
    )
    given = parser.parse_args()
    wheel = given.wheel.resolve()
    asked = ["" if name == "base" else name for name in given.only or ["base", *extras(wheel)]]
    for extra in asked:
        if extra not in TRIALS:
            sys.exit(f"no trial of the extra {extra}: write one in {__file__}")
    for extra in asked:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="regard-wheel-") as folder:
            TRIALS[extra](Environment(Path(folder), wheel, extra))
        print(f"{extra or 'no extra'}: well, in {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
