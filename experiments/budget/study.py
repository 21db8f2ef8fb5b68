"""Train the runs of the study one after the other; a run that was stopped continues.

    REGARD_DATA=... python experiments/budget/study.py OUT [--threads 1] [NAME ...]

OUT gets directories of prepared data and one directory for each run. The validations of each run
are written to journals/NAME.jsonl beside this file.
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """Read the arguments, and run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="runs of runs.toml; all of them by default")
    parser.add_argument("--threads", default="1")
    given = parser.parse_intermixed_args()  # names may follow an option
    corpora, runs = study()
    for name in given.names or runs:
        train(name, runs[name], corpora, given.out, given.threads)


def study() -> tuple[dict[str, dict[str, str]], dict[str, dict[str, object]]]:
    """The corpora and the runs of runs.toml; `like` adds the settings of an earlier run."""
    read = tomllib.loads((HERE / "runs.toml").read_text())
    runs = {}
    for name, own in read["run"].items():
        like = own.pop("like", None)
        runs[name] = {**runs[like], **own} if like else own
    return read["corpus"], runs


def train(
    name: str,
    settings: dict[str, object],
    corpora: dict[str, dict[str, str]],
    out: Path,
    threads: str,
) -> None:
    """Prepare the corpus if it is not prepared yet, train, and keep the validations."""
    settings = dict(settings)
    corpus, vocabulary = str(settings.pop("corpus")), settings.pop("vocabulary")
    longest = settings.get("data.max_length", "usual")
    data = out / f"{corpus}-{vocabulary}-{longest}"
    changes = [f"--set={field}={json.dumps(value)}" for field, value in settings.items()]
    base = ["--recipe", str(HERE / "start.toml"), "--set", f"tokenizer.vocabulary={vocabulary}"]
    if not data.is_dir():
        folder = Path(os.environ["REGARD_DATA"])
        files = [f"--{option}={folder / path}" for option, path in corpora[corpus].items()]
        regard("prepare", "--out", str(data), *base, *changes, *files)
    regard("train", "--data", str(data), "--out", str(out / name), "--threads", threads,
           "--quiet", *base, *changes)  # fmt: skip
    lines = (out / name / "journal.jsonl").read_text().splitlines()
    kept = [record for record in map(json.loads, lines) if record["event"] != "save"]
    steps = {record["step"] for record in kept if record["event"] == "validation"}
    with (HERE / "journals" / f"{name}.jsonl").open("w") as file:
        for record in kept:
            if record["event"] != "step" or record["step"] in steps:
                file.write(json.dumps(record) + "\n")


def regard(*arguments: str) -> None:
    """Run a command of regard; ends the study if it fails."""
    subprocess.run([sys.executable, "-m", "regard", *arguments], check=True)


if __name__ == "__main__":
    main()
