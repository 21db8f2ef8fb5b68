"""What an import wrote: opened, asked for logits, and translating."""

from pathlib import Path

import torch
from torch import Tensor

from cli.refusing import Result, regard
from exchange.marian_models import lines
from regard.data.rows import one_per_row
from regard.run.model_directory import Model, open_model
from regard.text.foreign.base import ForeignTokenizer
from regard.text.tokenizer import BOS

SOURCES = [*lines("source", 3, seed=5), ""]


def opened(done: Result, out: Path) -> Model:
    assert done.status == 0, done
    assert "proof        none" in done.stdout
    return open_model(out)


def ours(model: Model, source: list[int], target: list[int]) -> Tensor:
    """[target + 1, foreign vocabulary] Our logits in the foreign order."""
    assert isinstance(model.tokenizer, ForeignTokenizer)
    ids = model.tokenizer.order.foreign_ids
    source_ids = model.tokenizer.order_of("source").foreign_ids
    rows = [source_ids.index(i) for i in source], [BOS, *(ids.index(i) for i in target)]
    with torch.inference_mode():
        logits = model.network(*(one_per_row([row]) for row in rows))[0]
    found = torch.full((len(logits), max(ids) + 1), -torch.inf)
    for i, foreign in enumerate(ids):
        if foreign >= 0:
            found[:, foreign] = logits[:, i]
    never = [i for i, foreign in enumerate(ids) if foreign < 0]
    assert (logits[:, never] < -1e29).all()
    return found


def translates(out: Path) -> None:
    """It translates, in 8 bits too."""
    text = "".join(f"{line}\n" for line in SOURCES).encode()
    plain = regard("translate", out, "--no-retry", "--beam", "2", stdin=text)
    assert plain.stdout.count("\n") == len(SOURCES), plain
    assert regard("translate", out, "--beam", "1", "--precision", "int8", stdin=text).status == 0
    assert regard("info", out).status == 0
