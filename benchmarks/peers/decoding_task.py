"""The task of each program in the decoding benchmark: its arguments and its turn.

Programs other than regard are given the model as `regard export` writes it for them: nothing of
regard is imported here.
"""

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from worker import Turn

PAD, BOS, EOS = 0, 1, 2
LONGEST = 512
"""The number of positions of the programs' models, and the most tokens of an output."""


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True, help="a model directory of regard")
    parser.add_argument("--exported", type=Path, help="the same model, for this program")
    parser.add_argument("--sentences", type=Path, required=True, help="JSON: text and pieces each")
    parser.add_argument("--outputs", type=Path, required=True, help="what a turn writes last")
    parser.add_argument("--precision", choices=["fp32", "bf16", "int8"], default="fp32")
    parser.add_argument("--beam", type=int, required=True)
    parser.add_argument("--alpha", type=float, required=True, help="exponent of the length penalty")
    parser.add_argument("--length", type=int, help="of every output, in tokens; else the model's")
    parser.add_argument("--alone", action="store_true", help="one sentence at a time")
    parser.add_argument("--threads", type=int, required=True)
    return parser


def read_sentences(args: argparse.Namespace, what: str) -> list[Any]:
    """The "text" of each sentence, or its "pieces", the last of which is </s>."""
    return [sentence[what] for sentence in json.loads(args.sentences.read_text())]


def in_turn(
    args: argparse.Namespace, sentences: list[Any], translate: Callable[[list[Any]], Sequence[Any]]
) -> Turn:
    """A turn that translates all sentences, together or each alone, and writes the outputs.

    Writing is not timed.
    """
    groups = [[sentence] for sentence in sentences] if args.alone else [sentences]
    forget_peak_memory()  # the peak of reading and converting the model

    def turn(_: dict[str, Any]) -> dict[str, Any]:
        outputs: list[Any] = []
        times = []
        for group in groups:
            begin = time.perf_counter()
            translated = translate(group)
            times.append(time.perf_counter() - begin)
            outputs += translated
        args.outputs.write_text(json.dumps(outputs))
        return {"seconds": sum(times), "sentences": len(sentences), "each": times}

    return turn


def forget_peak_memory() -> None:
    """Make the kernel count peak memory from now on, if it allows this."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
