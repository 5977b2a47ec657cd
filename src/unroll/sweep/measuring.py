"""How many runs to train side by side: tried with a few batches of the very runs, not guessed.

On a GPU, and for small models anywhere, more runs a batch cost less each; for large models on a CPU one is best. So
1, 2, 4, 8, … are tried until a run-batch no longer gets cheaper.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from unroll.base.errors import UnrollError
from unroll.corpus.corpus import Corpus
from unroll.engines import devices
from unroll.engines.choice import engine_of
from unroll.experiment.experiment import Experiment
from unroll.training import memory
from unroll.training.learner import Learner

WARM_UP, TIMED, AT_MOST = 2, 3, 15  # batches: not timed, timed, and timed while they are short
SHORT = 0.2  # seconds; a longer batch needs one to warm up, and no more than are timed
SECONDS = 6.0  # for one group; what would take longer is not tried
PATIENCE = 2  # sizes in a row that brought nothing, since a busy machine may have spoiled one
AGAIN = 2  # times that a size is tried once more where its pace cannot be right
# A batch of more runs takes at least this share of one of fewer, and a run-batch in it at most so many times as long.
DROP, JUMP = 0.8, 4.0
WORTH = 0.95  # more runs side by side must cost at most this share of what fewer did


@dataclass(frozen=True)
class Pace:
    """How fast a number of runs were side by side."""

    runs: int
    milliseconds: float  # a run-batch
    bytes: int | None  # at most in use on the device; None where that is not known


def measure(
    experiments: Sequence[Experiment],
    corpora: Sequence[Corpus],
    most: int,
    between: Callable[[], None] = lambda: None,
) -> tuple[Pace, ...]:
    """A few batches of the first 1, 2, 4, … of these runs, up to `most`, until that no longer pays."""
    paces: list[Pace] = []
    for runs in _sizes(min(most, len(experiments))):
        if sum(map(_cost, paces)) + 2 * sum(map(_cost, paces[-1:])) > SECONDS:
            break
        try:
            paces.append(pace(experiments[:runs], corpora[:runs], between))
            for _ in range(AGAIN):
                for n in doubtful(paces):
                    # Other work on the machine only ever slows a trial: the faster one is nearer the truth.
                    once_more = pace(experiments[: paces[n].runs], corpora[: paces[n].runs], between)
                    paces[n] = min(paces[n], once_more, key=lambda tried: tried.milliseconds)
        except UnrollError:
            break  # why this cannot run is said where it is trained
        except Exception as error:
            if not memory.ran_out(error):
                raise
            break
        finally:
            devices.give_back()  # what was tried must not stand in the way of what comes next
        if len(paces) - paces.index(best(paces)) > PATIENCE:
            break
    return tuple(paces)


def best(paces: Sequence[Pace]) -> Pace:
    """The most runs whose batches were worth waiting for."""
    chosen = paces[0]
    for pace in paces[1:]:
        if pace.milliseconds < WORTH * chosen.milliseconds:
            chosen = pace
    return chosen


def doubtful(paces: Sequence[Pace]) -> list[int]:
    """Which of these trials cannot be right: those in which other work kept the machine busy.

    More runs side by side never make a batch of all of them shorter, nor each of them several times as long.

    >>> doubtful([Pace(1, 6.12, None), Pace(2, 75.5, None), Pace(4, 11.0, None)])
    [1]
    >>> doubtful([Pace(1, 6.0, None), Pace(2, 4.0, None), Pace(4, 3.5, None)])
    []
    """
    wrong = []
    for n, tried in enumerate(paces):
        longer = any(DROP * tried.runs * tried.milliseconds > more.runs * more.milliseconds for more in paces[n + 1 :])
        slower = any(tried.milliseconds > JUMP * fewer.milliseconds for fewer in paces[:n])
        wrong += [n] if longer or slower else []
    return wrong


def _cost(pace: Pace) -> float:
    """Seconds that a trial took; not counted is what only the first one pays for."""
    return (WARM_UP + TIMED) * pace.runs * pace.milliseconds / 1000


def _sizes(most: int) -> Iterator[int]:
    runs = 1
    while runs < most:
        yield runs
        runs *= 2
    yield most


def pace(experiments: Sequence[Experiment], corpora: Sequence[Corpus], between: Callable[[], None]) -> Pace:
    """A few batches of these runs side by side."""
    device = devices.find(experiments[0].device)
    torch.set_num_threads(experiments[0].threads or 1)
    devices.watch_peak(device)
    learner = Learner(experiments, corpora, engine_of(device, experiments[0].kernel))
    taken: list[float] = []
    cold = WARM_UP
    while len(taken) < cold + TIMED or (sum(taken) < SHORT and len(taken) < cold + AT_MOST):
        if len(taken) > cold and sum(taken) > SECONDS / 2:
            break
        between()
        began = time.perf_counter()
        learner.step()
        devices.wait(device)
        taken.append(time.perf_counter() - began)
        cold = 1 if taken[0] > SHORT else WARM_UP
    return Pace(len(experiments), 1000 * statistics.median(taken[cold:]) / len(experiments), devices.peak(device))
