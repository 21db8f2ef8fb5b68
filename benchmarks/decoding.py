"""Decoding speed: regard and other programs, with the same weights on the same sentences.

    make bench-setup                            # once: each program in an environment of its own
    .venv/bin/python benchmarks/decoding.py --source test.en --shape base
    .venv/bin/python benchmarks/decoding.py --source test.en --target test.de --model runs/mine

It prints two tables: for a file that is translated as a whole, and for sentences translated one at
a time. The programs take turns, each in a process of its own (side_by_side.py); peers/decoding_*.py
has what each of them does. The time of regard includes splitting text into pieces and joining them,
that of the others does not. Without --source the sentences are those of the built-in corpus.

`--shape` makes a model with random weights, except that </s> is never likely: such a model would
not end its outputs sensibly, so all programs make each output `--length` tokens long. `--model`
takes a trained model, which ends its outputs itself; with `--target` the table shows their BLEU.

"x bf16" is how many times faster regard in bf16 is than the program. "as fp32" is the share of
outputs whose text is that of regard in fp32. The other programs sometimes prefer another output,
for two reasons: they divide log p by |y|^alpha, not by ((5 + |y|) / 6)^alpha; and of the 2 x beam
candidates of a step, they keep those that end only if they are among the first `beam`. With
`--beam 1` all outputs in fp32 are the same. "of ceiling" is the model's FLOP in products with
weights, divided by the time and by the speed of the fastest matrix product measured in the same
rounds, in the precision of that program. --keep writes a JSON record.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from regard.corpus import example
from regard.files.lines import read_lines
from regard.recipe import Recipe
from regard.run.model_directory import open_model, write_model
from regard.score.bleu import bleu
from regard.text.tokenizer import EOS, Tokenizer
from regard.transformer import Transformer

sys.path.insert(0, str(Path(__file__).parent))  # also where this is imported
import side_by_side as sides
from exported import write_exported
from training import SHAPES

SEED = 3
"""The seed of built-in sentences that `regard demo` has not learned from."""


def regard(precision: str) -> sides.Contender:
    return sides.Contender(f"regard {precision}", "decoding_regard.py", ["--precision", precision])


def ctranslate2(name: str, *arguments: str) -> sides.Contender:
    return sides.Contender(
        f"CTranslate2 {name}", "decoding_ctranslate2.py", arguments, environment="ctranslate2"
    )


OURS = [regard("fp32"), regard("bf16"), regard("int8")]
BY_32 = ctranslate2("int8, by thread, 32", "--precision", "int8", "--by-thread", "--batch", "32")
CONTENDERS = [
    *OURS,
    ctranslate2("fp32", "--precision", "fp32"),
    ctranslate2("fp32, by thread", "--precision", "fp32", "--by-thread"),
    ctranslate2("int8", "--precision", "int8"),
    ctranslate2("int8, by thread", "--precision", "int8", "--by-thread"),
    BY_32,
    sides.Contender("Marian", "decoding_marian.py", environment="transformers"),
]
"""A contender "by thread" gives each thread batches of its own, of 64 sentences if not of 32."""
CEILING = sides.Contender("matrix products", "training_ceiling.py")
FILE_ONLY = [BY_32, CEILING]


@dataclass(frozen=True)
class Task:
    """The task of all contenders: translate these sentences with this model."""

    model: Path
    recipe: Recipe
    tokenizer: Tokenizer
    sentences: list[str]
    length: int | None
    """Tokens of each output, </s> included; None leaves it to the model."""

    def arguments(self, threads: int) -> list[str]:
        """The arguments of every contender; its sentences must be written first."""
        search = self.recipe.search
        given = [f"--model={self.model}", f"--beam={search.beam}", f"--alpha={search.alpha}"]
        given += [f"--length={self.length}"] if self.length else []
        return [*given, f"--threads={threads}"]

    def pieces(self) -> list[list[int]]:
        """The pieces of each sentence, as the encoder reads them."""
        return [[*pieces, EOS] for pieces in self.tokenizer.encode(self.sentences)]

    def tokens(self, outputs: Sequence[str]) -> list[int]:
        """Tokens of each output, </s> included."""
        if self.length:
            return [self.length] * len(outputs)
        return [len(pieces) + 1 for pieces in self.tokenizer.encode(outputs)]

    def flop(self, outputs: Sequence[str]) -> int:
        """Multiplications and additions with weights that the outputs take."""
        m, beam = self.recipe.model, self.recipe.search.beam
        source = m.layers * (6 * m.d_model**2 + 2 * m.d_model * m.d_ff)  # 2 of 6: cross K and V
        target = source + self.tokenizer.size * m.d_model
        # At its first token a sentence has but one hypothesis.
        steps = sum(1 + beam * (tokens - 1) for tokens in self.tokens(outputs))
        return 2 * (source * sum(map(len, self.pieces())) + target * steps)


def random_model(directory: Path, recipe: Recipe, lines: Sequence[str]) -> None:
    """A model directory of random weights; its tokenizer has exactly the recipe's vocabulary.

    If the lines give fewer entries than that, it is filled up with entries that no text uses. The
    logit of </s> is the least one, or nearly so, after any text.
    """
    size = recipe.tokenizer.vocabulary
    tokenizer = Tokenizer.learn(lines, recipe.tokenizer.kind, size)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        tokenizer.save(path)
        content = json.loads(path.read_text(encoding="utf-8"))
        content["model"]["vocab"] |= {f"unused {i}": i for i in range(tokenizer.size, size)}
        path.write_text(json.dumps(content), encoding="utf-8")
        tokenizer = Tokenizer.load(path)
    torch.manual_seed(SEED)
    model = Transformer(recipe.model, size)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    # The last layer's states and the embedding of </s> get opposite signs in one of their numbers.
    weights[f"decoder.{recipe.model.layers - 1}.add_norm_3.norm.bias"][0] = 4.0
    weights["embedding.tokens.weight"][EOS, 0] = -4.0
    write_model(directory, recipe, tokenizer, weights, {})


def run(
    task: Task, contenders: Sequence[sides.Contender], args: argparse.Namespace, *, alone: bool
) -> tuple[dict[str, sides.Result], dict[str, list[str]], dict[str, str]]:
    """Results and outputs by contender, and the reasons why other contenders have none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = zip(task.sentences, task.pieces(), strict=True)
        described = [{"text": text, "pieces": pieces} for text, pieces in pairs]
        (folder / "sentences.json").write_text(json.dumps(described))
        common = [*task.arguments(args.threads), f"--sentences={folder / 'sentences.json'}"]
        common += ["--alone"] if alone else []
        exported = write_exported(task.model, folder, {c.environment for c in contenders})
        ready = [
            replace(
                c,
                arguments=[
                    *common, *exported.get(c.environment, []), f"--outputs={folder / c.name}",
                    *c.arguments,
                ],
            )
            for c in contenders
            if c != CEILING
        ]  # fmt: skip
        ceiling = [c for c in contenders if c == CEILING]
        results, failures = sides.compare([*ready, *ceiling], args.rounds, args.threads)
        outputs = {
            name: texts(json.loads((folder / name).read_text()), task.tokenizer)
            for name in results
            if name != CEILING.name
        }
    return results, outputs, failures


def texts(outputs: list[Any], tokenizer: Tokenizer) -> list[str]:
    """The text of each output: regard gives texts, and other programs give pieces."""
    return outputs if isinstance(outputs[0], str) else tokenizer.decode(outputs)


def summarise(
    task: Task,
    results: dict[str, sides.Result],
    outputs: dict[str, list[str]],
    references: Sequence[str] | None,
) -> dict[str, dict[str, Any]]:
    """The speed of each contender, how much faster each of ours is, and its outputs."""
    limits = results[CEILING.name].turns if CEILING.name in results else []
    paces = {name: pace(results[name]) for name in outputs}
    ours = [contender.name for contender in OURS if contender.name in outputs]
    summaries: dict[str, dict[str, Any]] = {}
    for name, translations in outputs.items():
        turns = results[name].turns
        each = sorted(1000 * seconds for turn in turns for seconds in turn["each"])
        speed = sides.Spread.of(results[name].per_second("sentences"))
        summary = results[name].about | {
            "sentences_per_second": speed._asdict(),
            "tokens_per_second": speed.median * sum(task.tokens(translations)) / len(translations),
            "milliseconds": {"median": statistics.median(each), "p95": percentile(each, 95)},
            "regard_is_faster": {
                one: sides.ratio(paces[one], paces[name])._asdict() for one in ours
            },
            "peak_memory": max(turn["peak_memory"] for turn in turns),
            "turns": [{k: v for k, v in turn.items() if k != "each"} for turn in turns],
        }
        if OURS[0].name in outputs and (not task.length or name in ours):
            same = sum(a == b for a, b in zip(translations, outputs[OURS[0].name], strict=True))
            summary["as_fp32"] = same / len(translations)
        if references:
            summary["bleu"] = bleu(translations, [references])
        precision = f"torch.{summary['precision']}"
        if limits and precision in limits[0]["flop_per_second"]:
            done = [task.flop(translations) / turn["seconds"] for turn in turns]
            limit = [turn["flop_per_second"][precision] for turn in limits]
            summary["of_ceiling"] = sides.ratio(done, limit)._asdict()
        summaries[name] = summary
    return summaries


def pace(result: sides.Result) -> list[float]:
    """Sentences per second, for each round, if every sentence takes the round's median time."""
    return [1 / statistics.median(turn["each"]) for turn in result.turns]


def percentile(ascending: Sequence[float], percent: int) -> float:
    """The least value that at least `percent` percent of the values do not exceed."""
    return ascending[-(-percent * len(ascending) // 100) - 1]


def show(summaries: dict[str, dict[str, Any]], *, alone: bool) -> None:
    """Print the summaries as a table."""
    rows = {name: cells(summary, alone=alone) for name, summary in summaries.items()}
    header = max(rows.values(), key=len, default={})
    body = [[name, *(row.get(key, "-") for key in header)] for name, row in rows.items()]
    sides.print_table(["", *header], body)


def cells(summary: dict[str, Any], *, alone: bool) -> dict[str, str]:
    """The cells of a contender's row, by the heads of their columns."""
    row = {"precision": summary["precision"]}
    if alone:
        row["median ms"] = f"{summary['milliseconds']['median']:.1f}"
        row["p95 ms"] = f"{summary['milliseconds']['p95']:.1f}"
    else:
        row["sentences/s"] = sides.Spread(**summary["sentences_per_second"]).text(".1f")
        row["tokens/s"] = f"{summary['tokens_per_second']:,.0f}"
    for name, faster in summary["regard_is_faster"].items():
        row[f"x {name.removeprefix('regard ')}"] = f"{faster['median']:.2f}"
    if "as_fp32" in summary:
        row["as fp32"] = f"{summary['as_fp32']:.1%}"
    if "bleu" in summary:
        row["BLEU"] = f"{summary['bleu']:.2f}"
    if "of_ceiling" in summary:
        row["of ceiling"] = f"{summary['of_ceiling']['median']:.0%}"
    return row | {"peak MB": f"{summary['peak_memory'] / 1e6:,.0f}"}


def title(task: Task, *, alone: bool) -> str:
    m, search = task.recipe.model, task.recipe.search
    pieces = sum(map(len, task.pieces())) / len(task.sentences)
    outputs = f"forced to {task.length} tokens" if task.length else "of the model's own length"
    return (
        f"\n{len(task.sentences):,} sentences {'one at a time' if alone else 'as a file'}, "
        f"{pieces:.1f} tokens in the mean, outputs {outputs}; "
        f"d_model {m.d_model}, {m.layers} layers, {task.tokenizer.size:,} entries; "
        f"beam {search.beam}, alpha {search.alpha}"
    )


def read(args: argparse.Namespace) -> tuple[list[str], list[str] | None]:
    """Sentences and, if given, their translations; blank ones are left out."""
    if not args.source:
        examples = [example(SEED, i) for i in range(args.sentences)]
        return [e.source for e in examples], [e.target for e in examples] if args.model else None
    files = [list(read_lines(path)) for path in (args.source, args.target) if path]
    lines = [line for line in zip(*files, strict=True) if line[0].strip()][: args.sentences]
    sources, *targets = map(list, zip(*lines, strict=True))
    return sources, targets[0] if targets else None


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, help="text, a sentence a line")
    parser.add_argument("--target", type=Path, help="its translation, line by line, for BLEU")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--shape", choices=SHAPES, default="small", help="of a random model")
    which.add_argument("--model", type=Path, help="the directory of a trained model instead")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--alpha", type=float, default=0.6, help="of the length penalty")
    parser.add_argument("--length", type=int, default=16, help="of a random model's outputs")
    parser.add_argument("--sentences", type=int, default=1000, help="of the file")
    parser.add_argument("--alone", type=int, default=50, help="sentences translated one at a time")
    parser.add_argument(
        "--measure", choices=["file", "alone"], nargs="+", default=["file", "alone"]
    )
    sides.add_options(parser)
    return parser.parse_args()


def main() -> None:
    args = parsed()
    contenders = sides.chosen([*CONTENDERS, CEILING], args.only)
    record = sides.circumstances(args.threads)
    lines, references = read(args)
    parts = {"file": slice(None), "alone": slice(None, None, max(1, len(lines) // args.alone))}
    with tempfile.TemporaryDirectory() as name:
        directory = args.model or Path(name) / "model"
        if not args.model:
            random_model(directory, SHAPES[args.shape], lines)
        model = open_model(directory)
        recipe = model.recipe.but(beam=args.beam, alpha=args.alpha)
        whole = Task(directory, recipe, model.tokenizer, lines, None if args.model else args.length)
        record["model"] = str(args.model) if args.model else f"random, {args.shape}"
        record["recipe"] = recipe.model_dump(include={"model", "search"})
        record["vocabulary"] = model.tokenizer.size
        for measure in args.measure:
            part = parts[measure]
            task = replace(whole, sentences=lines[part])
            alone = measure == "alone"
            some = [c for c in contenders if not (alone and c in FILE_ONLY)]
            results, outputs, failures = run(task, some, args, alone=alone)
            summaries = summarise(task, results, outputs, references and references[part])
            print(title(task, alone=alone))
            show(summaries, alone=alone)
            record[measure] = {
                "sentences": len(task.sentences),
                "source_tokens": sum(map(len, task.pieces())),
                "contenders": summaries,
                "absent": failures,
            }
    if args.keep:
        sides.keep(record, args.keep, f"decoding-{args.model.name if args.model else args.shape}")


if __name__ == "__main__":
    main()
