"""A loop that makes several steps of a search (§6.1).

The rules are those of `regard.search`; `regard.arithmetic.few_rows` calls the loop.
"""

from typing import Any

import numpy as np
from numba.extending import overload

from regard.arithmetic.loops.few_rows import decode_layers, embed, project
from regard.arithmetic.loops.numbers import Numbers, divide, loop_for_weights, within
from regard.arithmetic.loops.search import (
    HYPOTHESES,
    choose_hypotheses,
    copy_hypothesis,
    rank_continuations,
)


def _logits(states: Any, decoder: Any, output: Any, slots: Any, logits: Any) -> None:
    """Turn `states`, the embedded last tokens, into the decoder's output; compute the logits.

    `decoder` and `slots` hold the other arguments of `decode_layers`, and `output` holds `weights`
    and `numbers` of `project`. The logits are written to `logits`, [1, rows, vocabulary]. Only
    compiled functions can call `_logits`; the call goes to the function that `_for_weights`
    returns.
    """


@overload(_logits)
def _for_weights(states: Any, decoder: Any, output: Any, slots: Any, logits: Any) -> Any:
    kind = str(decoder[0].dtype)
    layers: Any = decode_layers(kind)
    projection: Any = project(kind)

    def compute(states: Any, decoder: Any, output: Any, slots: Any, logits: Any) -> None:
        layers(states, *decoder, *slots)
        projection(states, *output, logits)

    return compute


@within
def _unwritten(like: Any, places: int) -> Any:
    """Uninitialised arrays for `places` hypotheses of each sentence.

    There is room for as many tokens as in the hypotheses `like`.
    """
    sentences, _, length = like[0].shape
    return (
        np.empty((sentences, places, length), np.int64),
        np.empty((sentences, places), np.int64),
        np.empty((sentences, places), np.float32),
        np.empty((sentences, places), np.float32),
    )


@within
def _last_tokens(live: Any, length: int, pad: int) -> Numbers:
    """The last token (index `length`) of each live hypothesis, [sentences * beams].

    If a sentence has fewer live hypotheses than beams, the other tokens are `pad`.
    """
    sentences, beams = live[1].shape
    tokens = np.empty(sentences * beams, np.int64)
    for s in range(sentences):
        for beam in range(beams):
            empty = live[2][s, beam] == -np.inf
            tokens[s * beams + beam] = pad if empty else live[0][s, beam, length]
    return tokens


@within
def _with_new_slots(ancestry: Numbers, rows: Numbers, first: int) -> Numbers:
    """The cache slots of each hypothesis's tokens: the slots of its parent, then one new slot.

    `rows` names the parent, as a row of `ancestry`. The new slots are numbered from `first`.
    """
    length = ancestry.shape[1]
    longer = np.empty((len(ancestry), length + 1), np.int64)
    for row in range(len(longer)):
        parent = rows[row // rows.shape[1], row % rows.shape[1]]
        for i in range(length):
            longer[row, i] = ancestry[parent, i]
        longer[row, length] = first + row
    return longer


@within
def _continuations(
    live: Any, logits: Numbers, never: Numbers, count: int, length: int, penalty: float
) -> Any:
    """The best `count` continuations of each sentence; their new tokens are at index `length`."""
    longer = _unwritten(live, count)
    tokens, rows, log_p, scores = longer
    new = np.empty(rows.shape, np.int64)
    rank_continuations(live[2], logits, never, rows, new, log_p)
    sentences, beams = live[1].shape
    for s in range(sentences):
        for place in range(count):
            parent = rows[s, place]
            for i in range(tokens.shape[2]):
                tokens[s, place, i] = live[0][s, parent, i]
            tokens[s, place, length] = new[s, place]
            rows[s, place] = parent + beams * s
            scores[s, place] = divide(log_p[s, place], penalty)
    return longer


@within
def _keep_last(live: Any, going: Numbers, before: Any) -> None:
    """Copy the live hypotheses of some sentences to `before`.

    The sentences are those that have a live hypothesis and are True in `going`.
    """
    for s in range(len(going)):
        if going[s] and live[2][s, 0] != -np.inf:
            for beam in range(live[1].shape[1]):
                copy_hypothesis(live, beam, before, beam, s)


@within
def _end(live: Any, going: Numbers) -> bool:
    """Remove the live hypotheses of ended sentences; return whether any sentence goes on.

    The log p and the score of a removed hypothesis become -inf.
    """
    some = False
    for s in range(len(going)):
        some = some or going[s]
        for beam in range(live[1].shape[1]):
            if not going[s]:
                live[2][s, beam] = live[3][s, beam] = -np.inf
    return some


def make_steps(weights: str) -> Any:
    """The loop that makes several steps, for weights of the type `weights`, such as "int8".

    The first call for a type loads the loop, or compiles it if this machine has never done so.
    """
    decode_layers(weights), project(weights)  # the loop calls these, so they are compiled first
    return _make_steps(weights)


@loop_for_weights(
    f"Tuple(({HYPOTHESES}, {HYPOTHESES}, boolean[::1], int64[:, ::1]))"
    f"({HYPOTHESES}, {HYPOTHESES}, {HYPOTHESES}, boolean[::1], int64[::1], int64, int64, "
    "Tuple((int64, int64, int64, boolean, float32[::1], int64[::1])), "
    "Tuple((float32[:, ::1], float32, float32[:, ::1])), "
    "Tuple(({w}[::1], float32[::1], int64[::1], float32)), "
    "Tuple(({w}[::1], float32[::1])), "
    "Tuple((float32[:, :, ::1], int64)), int64[:, ::1], float32[:, :, ::1], int64[:, ::1])"
)
def _make_steps(
    live: Any,
    finished: Any,
    before: Any,
    going: Numbers,
    max_lengths: Numbers,
    steps: int,
    length: int,
    rules: Any,
    embedding: Any,
    decoder: Any,
    output: Any,
    past: Any,
    ancestry: Numbers,
    memory: Numbers,
    sources: Numbers,
) -> Any:
    """Make `steps` steps of a search; return the new `live`, `finished`, `going` and `ancestry`.

    A step is an `unseen_step` of `regard.search`. The last live hypotheses that a sentence has in
    these steps are written to `before`. The loop ends early if all sentences have ended. `length`
    is the index of the last token of the live hypotheses. `rules` are the number of candidates, the
    ids of </s> and of padding, `finish_by_beam`, the length penalties, and the ids of tokens that
    are never produced. `embedding` is the matrix, its scale, and the positional encoding of each
    step. `decoder` has `weights`, `numbers`, `sizes` and `eps` of `decode_layers`; `output` has
    `weights` and `numbers` of `project`; `past` has keys and values, and how many slots are full.
    """
    rows, (count, eos, pad, by_beam, penalty, never) = live[1].size, rules
    matrix, scale, positions = embedding
    stored, slots = past
    for step in range(steps):
        ancestry = _with_new_slots(ancestry, live[1], slots + step * rows)
        y = np.empty((rows, matrix.shape[1]), np.float32)
        embed(_last_tokens(live, length, pad), matrix, scale, positions[step], y)
        logits = np.empty((1, rows, len(matrix)), np.float32)
        _logits(y, decoder, output, (stored, ancestry, memory, sources), logits)
        length += 1
        best = _continuations(live, logits[0], never, count, length, penalty[length])
        alive, found = _unwritten(live, live[1].shape[1]), _unwritten(live, live[1].shape[1])
        went = going
        going = np.empty_like(went)
        choose_hypotheses(
            best, finished, max_lengths, length, eos, by_beam, penalty, alive, found, going
        )
        _keep_last(alive, went, before)
        live, finished = alive, found
        if not _end(live, going):
            break
    return live, finished, going, ancestry
