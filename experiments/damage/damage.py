"""Damage a model, and checkpoints that are resumed or averaged, in hundreds of random ways.

    PYTHONPATH=tests .venv/bin/python experiments/damage/damage.py

Each time, a fresh copy is damaged, the public command is run on it, and the outcome is classified.
"""

import argparse
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path

from cli.refusing import GOOD, TINY, Result, process, regard
from regard.corpus import write_corpus
from run.damaging import damage

PAIRS = 300
SETTINGS = ("data.max_length=128", "training.steps=6", "training.average=3")
RECIPE = ["--recipe=base", *TINY, *(f"--set={setting}" for setting in SETTINGS)]


class Made:
    """Prepared data, and the originals: a run that has ended, one that has not, and a model."""

    def __init__(self, folder: Path):
        self.folder = folder
        write_corpus(folder / "text", 1, PAIRS)
        text = [f"--source={folder / 'text.en'}", f"--target={folder / 'text.de'}"]
        self.data, self.ended = folder / "data", folder / "ended"
        self.unfinished, self.model = folder / "unfinished", folder / "model"
        expect(regard("prepare", "-q", *text, *RECIPE, f"--out={self.data}"))
        expect(regard(*self.training(self.ended), *RECIPE))
        expect(regard("average", self.ended, "--last=3", f"--out={self.model}"))
        shutil.copytree(self.ended, self.unfinished)
        for name in ("model.safetensors", "manifest.json"):
            (self.unfinished / name).unlink()
        shutil.rmtree(self.unfinished / "checkpoints" / "step-6")
        self.translation = expect(translated(self.model)).stdout

    def training(self, run: Path) -> list[str]:
        return ["train", "-q", f"--data={self.data}", f"--out={run}", "--threads=1"]


def expect(result: Result) -> Result:
    assert result.status == 0, result
    return result


def translated(model: Path) -> Result:
    return regard("translate", model, "--threads=1", stdin=GOOD.encode())


def classified(result: Result, place: Path, same: bool) -> str:
    """The class of an outcome; classes in capitals are faults.

    A refusal must name `place`. `same` is whether the result is that without the damage.
    """
    named = str(place) in result.stderr
    if result.status not in (0, 2) or "Traceback" in result.stderr:
        return "TRACEBACK"
    if result.status == 2:
        one = len([line for line in result.stderr.splitlines() if "skipping" not in line]) == 1
        return "refused by name" if named and one else "REFUSED WITHOUT NAME"
    if named:
        return "skipped by name" if same else "SKIPPED, BUT ANOTHER RESULT"
    return "no harm: the same result" if same else "LOADED SILENTLY"


def of_a_model(made: Made, folder: Path, draw: random.Random) -> tuple[str, str]:
    """Damage a model and translate with it; return the damage and the class of the outcome."""
    model = Path(shutil.copytree(made.model, folder / "model"))
    harm = damage(model, draw)
    result = translated(model)
    return harm, classified(result, model, result.stdout == made.translation)


def of_a_whole_process(made: Made, folder: Path, draw: random.Random) -> tuple[str, str]:
    model = Path(shutil.copytree(made.model, folder / "model"))
    harm = damage(model, draw)
    result = process("translate", model, "--threads=1")
    return harm, classified(result, model, result.stdout == made.translation)


def damage_checkpoints(run: Path, newest: list[int], draw: random.Random) -> str:
    """Damage one of the checkpoints of these steps, or all; return a description of the damage."""
    steps = [draw.choice(newest)] if draw.random() < 0.75 else newest
    return ", ".join(damage(run / "checkpoints" / f"step-{step}", draw) for step in steps)


def of_a_resumed_run(made: Made, folder: Path, draw: random.Random) -> tuple[str, str]:
    """Damage checkpoint 4 or 5 of 6, or both, and resume: checkpoint 6 must come out the same."""
    run = Path(shutil.copytree(made.unfinished, folder / "run"))
    harm = damage_checkpoints(run, [4, 5], draw)
    result = regard(*made.training(run))
    last = "checkpoints/step-6"
    same = result.status == 0 and all(
        (run / last / name).read_bytes() == (made.ended / last / name).read_bytes()
        for name in ("weights.safetensors", "optimizer.safetensors")
    )
    return harm, classified(result, run / "checkpoints", same)


def of_an_averaged_run(made: Made, folder: Path, draw: random.Random) -> tuple[str, str]:
    """Damage checkpoint 5 or 6, or both, and average two of 4 to 6: a damaged one is skipped."""
    run = Path(shutil.copytree(made.ended, folder / "run"))
    harm = damage_checkpoints(run, [5, 6], draw)
    result = regard("average", run, "--last=2", f"--out={folder / 'model'}")
    skipped = "skipping a damaged checkpoint" in result.stderr
    return harm, classified(result, run / "checkpoints", skipped)


WAYS: dict[str, Callable[[Made, Path, random.Random], tuple[str, str]]] = {
    "a model, to translate": of_a_model,
    "a checkpoint, to resume": of_a_resumed_run,
    "a checkpoint, to average": of_an_averaged_run,
    "a model, by a whole process": of_a_whole_process,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--damages", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    given = parser.parse_args()
    draw = random.Random(given.seed)
    told: dict[str, object] = {"date": str(date.today()), "seed": given.seed}
    with tempfile.TemporaryDirectory() as place:
        made = Made(Path(place))
        for name, way in WAYS.items():
            verdicts: Counter[str] = Counter()
            harms: Counter[str] = Counter()
            unexpected: list[str] = []
            for i in range(given.damages // 10 if way is of_a_whole_process else given.damages):
                folder = made.folder / f"{way.__name__}-{i}"
                folder.mkdir()
                harm, verdict = way(made, folder, draw)
                shutil.rmtree(folder)
                harms.update(one.split(":")[0] for one in harm.split(", "))
                verdicts[verdict] += 1
                if not verdict.startswith(("refused", "skipped")):
                    unexpected.append(f"{harm}: {verdict}")
            told[name] = {"verdicts": verdicts, "unexpected": unexpected, "harms": harms}
            print(f"{name}: {dict(verdicts)} {unexpected}", flush=True)  # noqa: T201
    given.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
