"""Translate with encoder.onnx and decoder.onnx; this program needs only onnxruntime and numpy.

    python translate_ids.py 17 254 9 2      # the ids of a source; the last one is </s>

The program prints the ids of the output of greedy search. `Graphs.step` gives the logits of the
next token, with which you can write another search. If regard learned the tokenizer, the library
`tokenizers` can open the file tokenizer.json beside this file.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

PADDING, START, END = 0, 1, 2


class Graphs:
    """The ONNX graphs encoder.onnx and decoder.onnx of a directory."""

    def __init__(self, directory: Path):
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(
                str(directory / f"{name}.onnx"), providers=["CPUExecutionProvider"]
            )
            for name in ("encoder", "decoder")
        )

    def start(self, source: np.ndarray) -> dict[str, np.ndarray]:
        """The inputs of the first `step`, by name, except the tokens.

        `source` has the ids of one source in each row, as int64 [rows, length]; 0 is padding.
        """
        names = [output.name for output in self.encoder.get_outputs()]
        memory = dict(zip(names, self.encoder.run(names, {"source": source}), strict=True))
        past = {
            name.replace("memory", "past"): np.zeros((*its.shape[:2], 0, its.shape[3]), its.dtype)
            for name, its in memory.items()
        }
        return {"source": source, **memory, **past}

    def step(
        self, tokens: np.ndarray, state: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """[rows, vocabulary] The logits of the next token, and the inputs of the next step.

        Each row is a hypothesis. `tokens`, int64 [rows], has the last token of each hypothesis,
        which is <s> in the first step. `state` has the other inputs. To reorder the hypotheses, as
        beam search does after a step, reorder the rows of every array in the returned inputs.
        """
        names = [output.name for output in self.decoder.get_outputs()]
        found = dict(zip(names, self.decoder.run(names, {"tokens": tokens, **state}), strict=True))
        logits = found.pop("logits")
        return logits, state | {f"past_{name}": values for name, values in found.items()}


def greedy(model: Graphs, source: list[int], most: int) -> list[int]:
    """The ids of the output of greedy search, which takes the most likely token at each step.

    The search ends after </s>, which is not returned, or after `most` tokens. <pad> and <s> are
    never taken.
    """
    state, written = model.start(np.array([source], np.int64)), [START]
    while len(written) <= most and written[-1] != END:
        logits, state = model.step(np.array(written[-1:], np.int64), state)
        logits[:, [PADDING, START]] = -np.inf
        written.append(int(logits[0].argmax()))
    return [token for token in written[1:] if token != END]


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    if not given or given[-1] != END:
        sys.exit(f"usage: {Path(__file__).name} ID... {END}")
    print(*greedy(Graphs(Path(__file__).parent), given, len(given) + 50))  # noqa: T201
