"""CTranslate2 computes and searches; this module ranks the hypotheses by the rules of our search.

"Our search" is `regard.search`. CTranslate2's own search has another length penalty, and ends by
another rule. This module replaces both. It asks CTranslate2 for every hypothesis that finishes
within some steps, and for every hypothesis that is live (not finished) after these steps, each with
its log-probability. The score of a live hypothesis will be at most its present log-probability
divided by the largest penalty. If this bound is higher than a score that is to be returned, the
sentence is searched again with more steps.

Our search never writes <pad> or <s>, but counts both in the softmax. CTranslate2 is told that these
two tokens end a hypothesis, as </s> does. It then counts them in the softmax as well, and no live
hypothesis contains one of them.

In two rare cases our search decodes the sentence, and CTranslate2 computes only the logits of each
step. In the first case, <pad> or <s> is among the best continuations, which does not happen with a
trained model. In the second case, CTranslate2 has found a hypothesis that is among the best, but
our search (`search.finish = "beam"`) might have ended before it found this hypothesis.

One rule of CTranslate2 cannot be replaced: at each step, only the best `beam` continuations may
finish. A recipe with another rule is refused, unless its beam is 1.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.rows import Rows, one_per_row
from regard.division import by_length
from regard.engines.exported import Exported
from regard.engines.translator import EngineModel, EngineTranslator
from regard.errors import MissingExtra, ModelError, RecipeError
from regard.hypotheses import Hypothesis
from regard.recipe import SearchRecipe
from regard.search import search
from regard.text.tokenizer import BOS, EOS, PAD

try:
    import ctranslate2
except ModuleNotFoundError:
    raise MissingExtra("--engine ctranslate2", "exchange") from None

_ENDS = frozenset((PAD, BOS, EOS))
FIRST_STEPS = 12
"""The first search makes this many steps more than the longest source of its batch has tokens. Each
further search doubles this surplus. No search makes more steps than the output may have tokens."""
BATCH_TOKENS = 1024
"""The most source tokens of a batch, padding included. A longer sentence is a batch of its own."""


class CTranslate2Model(EngineModel):
    """A model that CTranslate2 computes and that our search can step through.

    Each step computes the whole prefix again, which is slow. Steps are therefore made only in
    the two rare cases that this module's docstring explains, in the second search for translations
    that look wrong (`regard.mending`), and for the certificate of an export. Raises ModelError if
    CTranslate2 cannot open the directory, or if the directory lacks a vocabulary.
    """

    def __init__(self, exported: Exported, threads: int):
        super().__init__(exported.manifest["positions"])
        # At its usual log level, CTranslate2 warns of a number format that the processor lacks.
        ctranslate2.set_log_level(logging.ERROR)
        try:
            self.translator = ctranslate2.Translator(
                str(exported.directory), inter_threads=threads, intra_threads=1
            )
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"{exported.directory}: CTranslate2 refuses it: {error}") from None
        self.source_names, self.names = (_names(exported, side) for side in ("source", "target"))
        self.ids = {name: i for i, name in enumerate(self.names)}

    def named(self, source: Sequence[int]) -> list[str]:
        """The names of a source's tokens, without </s>.

        CTranslate2 adds </s> if the model reads </s>.
        """
        return [self.source_names[i] for i in source[:-1]]

    def start(self, source: Rows) -> Prefixes:
        """The state before the first token, with one row for each sentence."""
        kept = zip(source.ids.tolist(), (source.segments != 0).sum(1).tolist(), strict=True)
        return Prefixes([ids[:length] for ids, length in kept], source.ids[:, :0])

    def step(self, tokens: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        """[rows, vocabulary] The logits of each row's next token, and the state after `tokens`.

        A row is a hypothesis. `tokens` [rows] has the last token of each row. CTranslate2 computes
        the whole prefix of each row again.
        """
        written = torch.cat([state.written, tokens.unsqueeze(1)], dim=1)
        found = self.logits(state.sources, written.tolist())
        return torch.from_numpy(np.stack([each[-1] for each in found])), Prefixes(
            state.sources, written
        )

    def logits(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Any:
        """For each target, an array [length, vocabulary]: the logits after each of its tokens.

        `sources` has the source of each target. Targets begin with <s>, and all have the same
        length.
        """
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
    """The state of regard's search: the source of each row, and the tokens written so far."""

    sources: list[list[int]]
    written: Tensor
    """[rows, length] Token ids from <s> on."""

    def select(self, rows: Tensor) -> Prefixes:
        """The state that consists of the rows with the indices `rows`, in this order."""
        these = rows.flatten()
        return Prefixes([self.sources[i] for i in these.tolist()], self.written[these])


class CTranslate2Translator(EngineTranslator):
    """A translator: CTranslate2 computes the model and, except in rare cases, makes the search.

    Raises ModelError as `CTranslate2Model` does.
    """

    model: CTranslate2Model

    def __init__(self, exported: Exported, threads: int):
        super().__init__(CTranslate2Model(exported, threads), exported)

    @property
    def versions(self) -> Mapping[str, str]:
        """The version of CTranslate2, and the number format in which it computes."""
        return {
            "ctranslate2": ctranslate2.__version__,
            "computed": self.model.translator.compute_type,
        }

    def refuse_other_search(self) -> None:
        """Raise RecipeError if the recipe lets more than the best `beam` continuations finish.

        A recipe with a beam of 1 is never refused.
        """
        if self.recipe.beam > 1 and self.recipe.finish != "beam":
            raise RecipeError(
                "search.finish = candidates: CTranslate2 lets only the best `beam` continuations "
                "finish: export with --set search.finish=beam, or give --beam 1"
            )

    def found(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        recipe: SearchRecipe,
        n_best: int,
    ) -> list[list[Hypothesis]]:
        """Up to `n_best` hypotheses of each source, best first; see `EngineTranslator.found`.

        At each step of the search, only the best `beam` continuations may finish.
        """
        if not 1 <= n_best <= recipe.beam:
            raise RecipeError(f"n_best = {n_best} must lie between 1 and beam = {recipe.beam}")
        results: dict[int, list[Hypothesis]] = {}
        waiting, extra = list(range(len(sources))), FIRST_STEPS
        otherwise: list[int] = []
        while waiting:
            undecided = []
            for i, steps, answer in self._ask_all(sources, limits, waiting, extra, recipe):
                pool = self._read(answer.result(), recipe)
                if pool is None:
                    otherwise.append(i)
                elif not _is_decided(pool, steps, limits[i], recipe, n_best):
                    undecided.append(i)
                elif _was_waited_for(pool, recipe, n_best):
                    results[i] = pool[:n_best]
                else:
                    otherwise.append(i)
            waiting, extra = undecided, 2 * extra
        for i in otherwise:
            results[i] = self._stepped(sources[i], limits[i], recipe, n_best)
        return [results[i] for i in range(len(sources))]

    def _stepped(
        self, source: Sequence[int], limit: int, recipe: SearchRecipe, n_best: int
    ) -> list[Hypothesis]:
        """Up to `n_best` hypotheses of one source, found by regard's own search, best first."""
        rows, limits = one_per_row([source]), torch.tensor([limit])
        [best] = search(self.model, rows, limits, recipe, by=self.model.by, n_best=n_best)
        return best

    def _ask_all(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        these: Sequence[int],
        extra: int,
        recipe: SearchRecipe,
    ) -> list[tuple[int, int, Any]]:
        """Begin to decode the sources whose indices are `these`, in batches.

        A batch makes at most `extra` steps more than its longest source has tokens, and never more
        than its smallest limit. Returns, for each source: its index, the largest number of steps
        that its batch makes, and its answer (see `_ask`).
        """
        asked = []
        for places in by_length([sources[i] for i in these], BATCH_TOKENS, 1):
            batch = [these[place] for place in places]
            steps = min(len(sources[batch[0]]) + extra, *(limits[i] for i in batch))
            answers = self._ask([sources[i] for i in batch], steps, recipe)
            asked += [(i, steps, answer) for i, answer in zip(batch, answers, strict=True)]
        return asked

    def _ask(self, sources: Sequence[Sequence[int]], steps: int, recipe: SearchRecipe) -> list[Any]:
        """Begin a search of at most `steps` steps; return an asynchronous answer for each source.

        The method `result` of an answer waits until the search has ended, then returns all
        hypotheses of the source, finished and live; with a beam of 1, there is only one.
        """
        many = recipe.beam * (steps + 1) if recipe.beam > 1 else 1
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
            end_token=[self.model.names[i] for i in _ENDS],
            return_scores=True,
            return_end_token=True,
        )
        return answers

    def _read(self, result: Any, recipe: SearchRecipe) -> list[Hypothesis] | None:
        """The hypotheses of one sentence, with the scores of our search, best first.

        Returns None if <pad> or <s> was among the best continuations of a step.
        """
        pool = []
        for names, log_p in zip(result.hypotheses, result.scores, strict=True):
            ids = [self.model.ids[name] for name in names]
            finished = not ids or ids[-1] == EOS
            tokens = tuple(ids[:-1] if finished else ids)
            if not _ENDS.isdisjoint(tokens):
                return None
            score = log_p / recipe.length_penalty(len(ids))
            pool.append(Hypothesis(tokens, score, log_p, finished))
        return sorted(pool, key=lambda hypothesis: -hypothesis.score)


def _is_decided(
    pool: Sequence[Hypothesis], steps: int, limit: int, recipe: SearchRecipe, n_best: int
) -> bool:
    """Whether the `n_best` best hypotheses are final, so that no more steps are needed.

    `pool` has all hypotheses after `steps` steps, sorted by score; an output has at most `limit`
    tokens.
    """
    finished = [one for one in pool if one.finished]
    if steps == limit or (recipe.beam == 1 and finished):
        return True
    alive = [one.log_probability for one in pool if not one.finished]
    # If CTranslate2 returned no live hypothesis, all hypotheses that it returned from the last step
    # have finished. Every live hypothesis, which it did not return, is at most as likely as the
    # least likely of the hypotheses that finished in the last step.
    if not alive:
        alive = [min(one.log_probability for one in pool if _length(one) == steps)]
    bound = max(alive) / recipe.length_penalty(limit)
    return len(finished) >= n_best and bound <= finished[n_best - 1].score


def _was_waited_for(pool: Sequence[Hypothesis], recipe: SearchRecipe, n_best: int) -> bool:
    """Whether our search would surely have found the best hypotheses before it ended.

    Our search ends after a step if `beam` hypotheses have finished and the best live hypothesis,
    scored at its present length, is no better than the `beam`-th best finished hypothesis. It is
    not known which hypotheses were live after an earlier step. But a hypothesis in `pool` that has
    more tokens than this step continues a hypothesis that was live then. So the best live
    hypothesis was at least as likely as the longer hypothesis. If a longer hypothesis is likely
    enough, our search went on after the step. If none is likely enough, our search may have ended
    there, and the result is False.
    """
    # With a beam of 1, there is one hypothesis. If alpha is 0, the score is log p, which
    # only falls: no hypothesis that finishes after the end of our search would be better.
    if recipe.beam == 1 or not recipe.alpha:
        return True
    for length in range(1, max(map(_length, pool[:n_best]))):
        before = [one.score for one in pool if _length(one) <= length][: recipe.beam]
        later = max(one.log_probability for one in pool if _length(one) > length)
        if len(before) == recipe.beam and later / recipe.length_penalty(length) <= before[-1]:
            return False
    return True


def _length(hypothesis: Hypothesis) -> int:
    """The number of tokens of a hypothesis, </s> included."""
    return len(hypothesis.tokens) + hypothesis.finished


def _names(exported: Exported, side: str) -> list[str]:
    """The names of all tokens of a side ("source" or "target"), in the order of our ids.

    Raises ModelError if the exported directory has no vocabulary for this side.
    """
    for name in (f"{side}_vocabulary.json", "shared_vocabulary.json"):
        path = exported.directory / name
        if path.exists():
            names: list[str] = json.loads(path.read_text("utf-8"))
            return names
    raise ModelError(f"{exported.directory}: has no {side} vocabulary: export it again")
