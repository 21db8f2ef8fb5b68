"""The best continuations of hypotheses, and the choice among them (§6.1)."""

from typing import Any

import numpy as np
from numpy import float32 as f32

from regard.arithmetic.loops.numbers import Numbers, exp, largest, loop_for, read, within

_BLOCK = 128
"""The number of logits in a block.

The logits of a block are ranked one by one only if the largest of them is high enough for a place
among the best continuations found so far.
"""


@within
def _log_sum_exp(row: Numbers, highest: f32) -> f32:
    """log(sum(exp(row))), but 0 if all numbers are -inf; NaN if any number is NaN or +inf.

    `highest` is the result of `largest` for this row.
    """
    powers = f32(0)
    if highest == -np.inf:  # each number is -inf, or NaN with the sign bit set
        for j in range(len(row)):
            powers += f32(0) if read(row[j]) == -np.inf else read(row[j])
        return powers
    for j in range(len(row)):
        powers += exp(read(row[j]) - highest)
    return highest + np.log(powers)


@within
def _insert(
    beam: int, token: int, log_p: f32, parents: Numbers, tokens: Numbers, best: Numbers
) -> None:
    """Insert a continuation before all less likely continuations, and drop the last one.

    `parents`, `tokens` and `best` are the continuations of one sentence, most likely first. For
    each continuation, they hold the index (beam) of the hypothesis that is continued, the new
    token, and the log-probability of the continuation.
    """
    place = len(best) - 1
    while place > 0 and log_p > best[place - 1]:
        parents[place], tokens[place] = parents[place - 1], tokens[place - 1]
        best[place] = best[place - 1]
        place -= 1
    parents[place], tokens[place], best[place] = beam, token, log_p


@loop_for(
    "void(float32[:, ::1], {n}[:, ::1], int64[::1], int64[:, ::1], int64[:, ::1], float32[:, ::1])"
)
def rank_continuations(
    live: Numbers, logits: Numbers, never: Numbers, parents: Numbers, tokens: Numbers, best: Numbers
) -> None:
    """Find the continuations that have the largest live + log softmax(logits), for each sentence.

    `live`, [sentences, beams], has the log-probabilities of the live hypotheses. The continuations
    are written to `parents` (the indices of their hypotheses), `tokens` and `best` (their
    log-probabilities), each [sentences, places], the most likely first. A place holds one
    continuation. Equally likely continuations are in the order of `parents`, then of `tokens`.
    Tokens in `never` are left out. If a sentence has fewer continuations than places, `best` is
    -inf in the other places. Hypotheses with the log-probability -inf are skipped. If a hypothesis
    that is not skipped has a logit of NaN or +inf, `best` is NaN in all places of its sentence.
    """
    sentences, beams = live.shape
    columns = logits.shape[1]
    maxima = np.empty((columns + _BLOCK - 1) // _BLOCK, np.float32)
    for s in range(sentences):
        parents[s], tokens[s], best[s] = 0, 0, -np.inf
        for beam in range(beams):
            own, row = live[s, beam], logits[s * beams + beam]
            if own == -np.inf:
                continue
            for block in range(len(maxima)):
                maxima[block] = largest(row[block * _BLOCK : (block + 1) * _BLOCK])
            shift = own - _log_sum_exp(row, largest(maxima))
            if np.isnan(shift):
                best[s] = np.nan
                break
            for block in range(len(maxima)):
                if shift + maxima[block] > best[s, -1]:
                    for token in range(block * _BLOCK, min(columns, (block + 1) * _BLOCK)):
                        log_p = shift + read(row[token])
                        if log_p > best[s, -1] and not (never == token).any():
                            _insert(beam, token, log_p, parents[s], tokens[s], best[s])


HYPOTHESES = "Tuple((int64[:, :, ::1], int64[:, ::1], float32[:, ::1], float32[:, ::1]))"
"""The Numba type of the fields of `regard.hypotheses.Hypotheses`: tokens, rows, log_p and score."""


@within
def copy_hypothesis(source: Any, place: int, target: Any, to: int, s: int) -> None:
    """Copy hypothesis number `place` of sentence s in `source` to hypothesis `to` in `target`."""
    for i in range(target[0].shape[2]):
        target[0][s, to, i] = source[0][s, place, i]
    target[1][s, to] = source[1][s, place]
    target[2][s, to], target[3][s, to] = source[2][s, place], source[3][s, place]


@within
def _empty(from_place: int, target: Any, like: Any, s: int) -> None:
    """Make the places of sentence s in `target` empty, from `from_place` to the last.

    A place has room for one hypothesis. The log p and the score of an empty place are -inf. The
    tokens and the row number of an empty place are copied from the first place of `like`, because
    the row must belong to sentence s.
    """
    for to in range(from_place, target[1].shape[1]):
        copy_hypothesis(like, 0, target, to, s)
        target[2][s, to] = target[3][s, to] = -np.inf


@within
def _stay_alive(candidates: Any, length: int, eos: int, live: Any, s: int) -> None:
    """Copy the best candidates of sentence s that do not end in </s> to `live`.

    The last token of each candidate is at index `length`. In the places of `live` that stay empty,
    log p and score become -inf.
    """
    alive = 0
    for place in range(candidates[1].shape[1]):
        if alive == live[1].shape[1] or candidates[2][s, place] == -np.inf:
            break
        if candidates[0][s, place, length] != eos:
            copy_hypothesis(candidates, place, live, alive, s)
            alive += 1
    _empty(alive, live, candidates, s)


@within
def _finish(
    candidates: Any,
    length: int,
    eos: int,
    most: int,
    finished: Any,
    found: Any,
    s: int,
    ended: bool,
) -> None:
    """Write the best finished hypotheses of sentence s, after this step, to `found`.

    The hypotheses that finished before this step are in `finished`. Only the first `most`
    candidates may finish in this step. If `ended` is True, the sentence has its maximum length, and
    all of the first `most` candidates finish. Otherwise, a candidate finishes if its last token, at
    `length`, is </s>.
    """
    done = old = 0
    beam, scores = found[1].shape[1], finished[3]
    for place in range(min(most, candidates[1].shape[1])):
        if candidates[2][s, place] == -np.inf:
            break
        if ended or candidates[0][s, place, length] == eos:
            while done < beam and scores[s, old] >= candidates[3][s, place]:
                copy_hypothesis(finished, old, found, done, s)
                done, old = done + 1, old + 1
            if done < beam:
                copy_hypothesis(candidates, place, found, done, s)
                done += 1
    while done < beam and scores[s, old] > -np.inf:
        copy_hypothesis(finished, old, found, done, s)
        done, old = done + 1, old + 1
    _empty(done, found, candidates, s)


@loop_for(
    f"void({HYPOTHESES}, {HYPOTHESES}, int64[::1], int64, int64, boolean, float32[::1], "
    f"{HYPOTHESES}, {HYPOTHESES}, boolean[::1])"
)
def choose_hypotheses(
    candidates: Any,
    finished: Any,
    max_lengths: Numbers,
    length: int,
    eos: int,
    by_beam: bool,
    penalty: Numbers,
    live: Any,
    found: Any,
    going: Numbers,
) -> None:
    """Write the result of `regard.hypotheses.choose_best` to `live`, `found` and `going`.

    `found` gets the finished hypotheses after the step; `finished` has those before the step.
    `candidates` and `finished` must each be in the order of their scores, best first. If scores are
    equal, hypotheses of `finished` come before candidates. `by_beam` and `penalty` are the fields
    `finish_by_beam` and `penalty` of `regard.hypotheses.Choosing`.
    """
    beam = live[1].shape[1]
    most = beam if by_beam else candidates[1].shape[1]
    for s in range(len(going)):
        longest = max_lengths[s]
        _stay_alive(candidates, length, eos, live, s)
        _finish(candidates, length, eos, most, finished, found, s, by_beam and length == longest)
        bound = live[2][s, 0] / penalty[length if by_beam else longest]
        going[s] = bound > found[3][s, beam - 1] and length < longest
