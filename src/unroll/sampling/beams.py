"""Beam search: the likeliest continuation that can be found while keeping only a few at every step.

Nothing is random. A text that a stop string ends competes by its log-probability a token, so that short texts do not
win by being short. Ties go to the earlier beam, then to the lower symbol.

Shapes: B beams, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unroll.base.errors import RunError
from unroll.model import steppers
from unroll.model.model import Model
from unroll.model.steppers import Ids
from unroll.runs.perplexities import DIVERGED
from unroll.sampling.streams import read


@dataclass(frozen=True)
class Hypothesis:
    """A continuation and the log-probability of each of its tokens."""

    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    total: float = 0.0

    @property
    def score(self) -> float:
        """Log-probability a token."""
        return self.total / len(self.ids)

    def followed_by(self, token: int, logprob: float) -> Hypothesis:
        """One token longer."""
        return Hypothesis((*self.ids, token), (*self.logprobs, logprob), self.total + logprob)


def beam_search(
    model: Model,
    prompt: Ids,
    k2: int,
    procedure: str,
    beams: int,
    length: int,
    ends: Callable[[Sequence[int]], bool] = lambda ids: False,
) -> list[Hypothesis]:
    """The best continuations found, best first: `length` tokens long, or shorter where `ends(ids)` says so."""
    stepper = model.engine.rows(model, k2, procedure, beams)
    stepper.begin(1)
    for token in read(prompt, k2, procedure):
        stepper.read(np.array([token]))
    live, done = [Hypothesis()], list[Hypothesis]()
    for step in range(length):
        parents, grown = _grow(live, _log_softmax(stepper.logits()), beams, ends, done)
        done = sorted(done, key=lambda h: -h.score)[:beams]
        live = grown
        # A total only falls, so over its longest possible text a beam can do no better than this.
        hopeless = len(done) == beams and all(h.total / length <= done[-1].score for h in live)
        if not live or hopeless or step == length - 1:
            break
        stepper.take(parents)
        stepper.read(np.array([h.ids[-1] for h in live]))
    whole = [h for h in live if len(h.ids) == length]
    return sorted(done + whole, key=lambda h: -h.score)[:beams]


def _grow(
    live: list[Hypothesis],
    log_p_BV: NDArray[np.float64],
    beams: int,
    ends: Callable[[Sequence[int]], bool],
    done: list[Hypothesis],
) -> tuple[list[int], list[Hypothesis]]:
    """The likeliest hypotheses of one token more that go on, and their parents' rows; those that end join the done."""
    totals_B = np.array([h.total for h in live])
    scores = (totals_B[:, None] + log_p_BV).ravel()
    parents: list[int] = []
    grown: list[Hypothesis] = []
    for place in np.argsort(-scores, kind="stable"):
        if len(grown) == beams or scores[place] == -np.inf:
            break
        b, token = divmod(int(place), log_p_BV.shape[1])
        longer = live[b].followed_by(token, float(log_p_BV[b, token]))
        if ends(longer.ids):
            done.append(longer)
        else:
            parents.append(b)
            grown.append(longer)
    return parents, grown


def _log_softmax(logits_BV: steppers.Array) -> NDArray[np.float64]:
    logits = logits_BV.astype(np.float64)
    if not np.isfinite(logits).all():
        raise RunError(DIVERGED)
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))
