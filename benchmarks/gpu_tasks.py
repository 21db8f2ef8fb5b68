"""Do tasks of gpu.py in this process: python gpu_tasks.py TASK... --folder FOLDER [--smoke].

The answer to a task is a JSON object: figures, details and, if the task checks something, `passes`.
FOLDER/answer gets the answer or, for several tasks, a list of answers. A task that has compiled a
large program makes FOLDER/ready, and waits for FOLDER/go before it measures.
"""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def tasks(data: Path | None, folder: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every task by name."""
    import gpu_checks as checks
    import gpu_speed as speed

    kernels = ("flex", "efficient", "cudnn")
    return {
        "machine": speed.machine,
        "equations": checks.equations,
        "search": checks.searching,
        **{f"compiled, {kernel}": partial(checks.compiling, kernel) for kernel in kernels},
        "dropout": checks.dropout,
        "deterministic": checks.deterministic,
        "learning": partial(checks.learning, data),
        "memory": checks.memory,
        **{
            f"{shape}, {kernel}": partial(speed.training, folder, shape, attention=kernel)
            for shape in ("base", "big")
            for kernel in kernels
        },
        "base, rows of 128": partial(speed.training, folder, "base", row_length=128),
        "base, not compiled": partial(speed.training, folder, "base", attention=None),
        "torch.nn.Transformer": partial(speed.straightforward, folder),
        "torch.nn.Transformer without cuDNN": partial(speed.straightforward, folder, cudnn=False),
        "torch.nn.Transformer without cuDNN, compiled": partial(
            speed.straightforward, folder, cudnn=False, fast=True
        ),
        "pipeline": speed.pipeline,
        "attention": speed.attention,
        "decoding, 1,000": partial(speed.decoding, 1000),
        "decoding, 3,003": partial(speed.decoding, 3003),
        "decoding, 3,003, one stream": partial(speed.decoding, 3003, streams=1),
        "decoding, 3,003, three streams": partial(speed.decoding, 3003, streams=3),
        "decoding, 20,000": partial(speed.decoding, 20_000),
        "decoding, fp32": partial(speed.decoding, 1000, "float32"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", metavar="TASK")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.packages:
        sys.path.append(str(args.packages))  # last: packages that Python has come first
    import torch

    torch.manual_seed(1)
    known = tasks(args.data, args.folder)
    about = {"torch": torch.__version__}
    found = []
    for name in args.names:
        answer = known[name]()
        if torch.cuda.is_available():
            answer["peak_memory"] = torch.cuda.max_memory_allocated()
        found.append({**answer, **about})
    (args.folder / "answer").write_text(json.dumps(found if len(found) > 1 else found[0]))


if __name__ == "__main__":
    main()
