"""CTranslate2 computes and searches; which of its hypotheses count is decided here, as we define.

CTranslate2's own search has another length penalty and another end. Both are replaced: it is asked
for every hypothesis that finishes within some steps, and for those still alive then, each with its
log-probability. From these the result of our search follows exactly: a hypothesis that is alive
cannot score more than its log-probability over the largest penalty, and where that may be too
much, the sentence is searched again with more steps.

Two things differ from `regard.search` with `finish = "candidates"`, the paper's beam search as it
is implemented here: CTranslate2 lets only the best `beam` continuations finish, so a recipe must
say so; and it leaves <pad> and <s> out before the softmax.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.rows import Rows
from regard.decoding import by_length
from regard.engines.exported import Exported, open_exported
from regard.engines.translator import EngineModel, EngineTranslator
from regard.errors import MissingExtra, ModelError, RecipeError
from regard.recipe import SearchRecipe
from regard.search import Hypothesis
from regard.text.tokenizer import BOS, EOS, PAD

try:
    import ctranslate2
except ModuleNotFoundError:
    raise MissingExtra("--engine ctranslate2", "exchange") from None

FIRST_STEPS = 12
"""Steps of the first search beyond the length of the source; each further one has twice as many."""
BATCH_TOKENS = 1024
"""Source tokens of a batch, padding included."""


class CTranslate2Model(EngineModel):
    """CTranslate2's model, as one that our search can step through.

    Each step computes the whole prefix again, so this is slow; it serves the second search for
    translations that look wrong, and the certificate.
    """

    def __init__(self, exported: Exported, threads: int):
        super().__init__(int(exported.manifest["positions"]))
        ctranslate2.set_log_level(logging.ERROR)  # it would warn of a precision the processor lacks
        self.source_names, self.names = (_names(exported, side) for side in ("source", "target"))
        self.ids = {name: i for i, name in enumerate(self.names)}
        try:
            self.translator = ctranslate2.Translator(
                str(exported.directory), inter_threads=threads, intra_threads=1
            )
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"{exported.directory}: CTranslate2 refuses it: {error}") from None

    def named(self, source: Sequence[int]) -> list[str]:
        """The names of the tokens of a source without its </s>, which CTranslate2 adds."""
        return [self.source_names[i] for i in source[:-1]]

    def start(self, source: Rows) -> Prefixes:
        """The state before the first token."""
        kept = zip(source.ids.tolist(), (source.segments != 0).sum(1).tolist(), strict=True)
        return Prefixes([ids[:length] for ids, length in kept], source.ids[:, :0])

    def step(self, tokens: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        """Logits of the token after each prefix, which is computed as a whole."""
        written = torch.cat([state.written, tokens.unsqueeze(1)], dim=1)
        found = self.logits(state.sources, written.tolist())
        return torch.from_numpy(np.stack([each[-1] for each in found])), Prefixes(
            state.sources, written
        )

    def logits(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Any:
        """The logits after each token of each target; targets begin with <s>, equally long."""
        results = self.translator.translate_batch(
            [self.named(source) for source in sources],
            [[self.names[i] for i in target[1:]] for target in targets],
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            beam_size=1,
            max_decoding_length=len(targets[0]),
            min_decoding_length=0,
            max_input_length=0,
            return_logits_vocab=True,
            return_end_token=True,
        )
        return [np.stack([np.array(its) for its in result.logits[0]]) for result in results]


@dataclass(frozen=True)
class Prefixes:
    """The state of our search: the source of each row, and the tokens written so far."""

    sources: list[list[int]]
    written: Tensor  # [rows, length]

    def select(self, rows: Tensor) -> Prefixes:
        """The state of these rows."""
        these = rows.flatten()
        return Prefixes([self.sources[i] for i in these.tolist()], self.written[these])


class CTranslate2Translator(EngineTranslator):
    """A translator by CTranslate2."""

    model: CTranslate2Model

    @property
    def versions(self) -> Mapping[str, str]:
        """The version of CTranslate2, and the numbers it computes with."""
        return {
            "ctranslate2": ctranslate2.__version__,
            "computed": self.model.translator.compute_type,
        }

    def refuse_other_search(self) -> None:
        """Raise RecipeError unless only the best `beam` continuations finish."""
        if self.recipe.beam > 1 and self.recipe.finish != "beam":
            raise RecipeError(
                "search.finish = candidates: CTranslate2 lets only the best `beam` continuations "
                "finish: export with --set search.finish=beam, or give --beam 1 or --engine onnx"
            )

    def found(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        recipe: SearchRecipe,
        n_best: int,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, of which only the best `beam` continuations finish."""
        results: dict[int, list[Hypothesis]] = {}
        waiting, extra = list(range(len(sources))), FIRST_STEPS
        while waiting:
            asked = self._ask_all(sources, limits, waiting, extra, recipe)
            for i, steps, answer in asked:
                pool = self._read(answer.result(), recipe)
                if _is_decided(pool, steps, limits[i], recipe, n_best):
                    finished = [one for one in pool if one.finished]
                    results[i] = (finished or pool)[:n_best]
            waiting, extra = [i for i in waiting if i not in results], 2 * extra
        return [results[i] for i in range(len(sources))]

    def _ask_all(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        these: Sequence[int],
        extra: int,
        recipe: SearchRecipe,
    ) -> list[tuple[int, int, Any]]:
        """Begin a search for some sources: the number of each, its steps, and its answer."""
        asked = []
        for places in by_length([sources[i] for i in these], BATCH_TOKENS, 1):
            batch = [these[place] for place in places]
            steps = min(len(sources[batch[0]]) + extra, *(limits[i] for i in batch))
            answers = self._ask([sources[i] for i in batch], steps, recipe)
            asked += [(i, steps, answer) for i, answer in zip(batch, answers, strict=True)]
        return asked

    def _ask(self, sources: Sequence[Sequence[int]], steps: int, recipe: SearchRecipe) -> list[Any]:
        """Begin a search of so many steps; each answer has all hypotheses, finished or alive."""
        many = recipe.beam * (steps + 1) if recipe.beam > 1 else 1
        never = [[self.model.names[PAD]], [self.model.names[BOS]]]
        answers: list[Any] = self.model.translator.translate_batch(
            [self.model.named(source) for source in sources],
            asynchronous=True,
            beam_size=recipe.beam,
            patience=steps + 1,
            num_hypotheses=many,
            length_penalty=0,
            max_decoding_length=steps,
            min_decoding_length=0,
            max_input_length=0,
            suppress_sequences=never,
            return_scores=True,
            return_end_token=True,
        )
        return answers

    def _read(self, result: Any, recipe: SearchRecipe) -> list[Hypothesis]:
        """The hypotheses of one sentence, with our scores, best first."""
        pool = []
        for names, log_p in zip(result.hypotheses, result.scores, strict=True):
            ids = [self.model.ids[name] for name in names]
            finished = not ids or ids[-1] == EOS
            score = log_p / recipe.length_penalty(max(1, len(ids)))
            pool.append(Hypothesis(tuple(i for i in ids if i != EOS), score, log_p, finished))
        return sorted(pool, key=lambda hypothesis: -hypothesis.score)


def _is_decided(
    pool: Sequence[Hypothesis], steps: int, limit: int, recipe: SearchRecipe, n_best: int
) -> bool:
    """Whether so many steps decide the result of our search; `pool` is sorted by score."""
    finished = [one.score for one in pool if one.finished]
    alive = [one.log_probability for one in pool if not one.finished]
    if steps == limit or not alive:
        return True
    bound = max(alive) / recipe.length_penalty(limit)
    return len(finished) >= n_best and bound <= finished[n_best - 1]


def _names(exported: Exported, side: str) -> list[str]:
    """The names of all entries of a side, by our ids, as CTranslate2 was given them."""
    for name in (f"{side}_vocabulary.json", "shared_vocabulary.json"):
        path = exported.directory / name
        if path.exists():
            names: list[str] = json.loads(path.read_text("utf-8"))
            return names
    raise ModelError(f"{exported.directory}: has no {side} vocabulary: export it again")


def load_ctranslate2(directory: Path, threads: int) -> CTranslate2Translator:
    """Open a directory that `regard export ctranslate2` made; raises ModelError."""
    exported = open_exported(directory, "ctranslate2")
    return CTranslate2Translator(CTranslate2Model(exported, threads), exported)
