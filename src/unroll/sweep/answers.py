"""What a sweep answers: which setting is best, and whether the seeds tell it from the next.

One run is one seed, and seeds differ, often by more than settings do. So runs that differ in nothing but the seed are
one setting, with a mean and an interval. Perplexities are compared by their ratio: means are geometric, intervals are
Student's in the logarithm, at 95 %. Two settings are compared seed by seed, over the seeds that both have, since the
same seed begins with the same weights. The best setting was picked by looking, so its differences from the others are
held to a stricter level: 0.05 divided by their number.

    >>> rows = [{"corpus": "a", "k1": k1, "seed": seed, "perplexity": ppl, "state": "finished", "run": f"{k1}{seed}"}
    ...         for k1, of_seeds in ((20, (5.0, 5.2, 5.1)), (40, (6.0, 6.3, 6.1))) for seed, ppl in enumerate(of_seeds)]
    >>> (answer,) = answers(rows)
    >>> [(standing.setting["k1"], standing.is_apart) for standing in answer.standings]
    [(20, None), (40, True)]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from unroll.runs import selection
from unroll.sweep import table
from unroll.sweep.student import quantile

LEVEL = 0.05
NOT_OF_A_SETTING = ("run", "seed", table.VALIDATION, *table.RESULTS)

Row = dict[str, Any]


@dataclass(frozen=True)
class Interval:
    """A mean over seeds, and the ends of its interval; the ends are None where one seed says nothing of them."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Standing:
    """One setting: its perplexity over seeds, and how far it is from the best setting."""

    setting: Row  # the columns that differ between settings
    seeds: int
    unfinished: int  # runs without a finite perplexity at their end: diverged, failed or not there yet
    perplexity: Interval | None
    ratio: Interval | None  # to the best setting's perplexity, paired by seed; None for the best itself
    paired: int  # the seeds that both have
    is_apart: bool | None  # None for the best itself, and where nothing can be said


@dataclass(frozen=True)
class Answer:
    """The settings of one corpus, the best first."""

    corpus: str
    chosen_on: str  # the set whose perplexity is compared
    columns: tuple[str, ...]  # in which settings differ
    standings: tuple[Standing, ...]

    @property
    def best(self) -> Standing:
        """The setting with the lowest mean."""
        return self.standings[0]

    @property
    def level(self) -> float:
        """The chance of a wrong difference that each comparison with the best may have."""
        return LEVEL / max(1, len(self.standings) - 1)

    def in_words(self) -> str:
        """The answer in a sentence or two."""
        others = self.standings[1:]
        if self.best.perplexity is None:
            return "No setting has a run that ended with a finite perplexity."
        tied = [standing for standing in others if standing.is_apart is not True]
        first = _named(self.best.setting)
        if self.best.seeds < 2:
            return (
                f"The lowest is {first}, from one seed: seeds often differ by more than settings do, so this does not "
                "tell them apart. Train each with --seeds 3 or more."
            )
        if not tied:
            return f"{first} is best: the seeds tell it from every other setting."
        names = "; ".join(_named(standing.setting) for standing in tied[:SHOWN])
        more = f"; and {len(tied) - SHOWN} more" if len(tied) > SHOWN else ""
        apart = f" The seeds tell it from the other {len(others) - len(tied)}." if len(tied) < len(others) else ""
        return f"{first} has the lowest mean, and cannot be told apart from: {names}{more}.{apart}"


SHOWN = 4  # names of settings in a sentence


def answers(rows: Iterable[Row]) -> list[Answer]:
    """An answer for each corpus with more than one setting: across corpora perplexities cannot be compared."""
    of_corpora: dict[str, list[Row]] = {}
    for row in rows:
        of_corpora.setdefault(str(row["corpus"]), []).append(row)
    every = [_answer(corpus, of_corpus) for corpus, of_corpus in of_corpora.items()]
    return [answer for answer in every if len(answer.standings) > 1]


def _answer(corpus: str, rows: Sequence[Row]) -> Answer:
    names = [name for name in rows[0] if name not in NOT_OF_A_SETTING]
    columns = tuple(name for name in names if len({repr(row[name]) for row in rows}) > 1)
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(repr(row[name]) for name in columns), []).append(row)
    logs = {
        key: {row["seed"]: math.log(table.compared(row)) for row in group if _counts(row)}
        for key, group in groups.items()
    }
    order = sorted(groups, key=lambda key: (len(logs[key]) < len(groups[key]), _mean(logs[key].values())))
    best = logs[order[0]]
    level = LEVEL / max(1, len(order) - 1)
    standings = []
    for key in order:
        values = list(logs[key].values())
        shared = [logs[key][seed] - best[seed] for seed in logs[key] if seed in best]
        ratio = _interval(shared, level) if key != order[0] and shared else None
        standings.append(
            Standing(
                {name: groups[key][0][name] for name in columns}, len(values), len(groups[key]) - len(values),
                _interval(values, LEVEL) if values else None, ratio, len(shared) if key != order[0] else 0,
                None if ratio is None or ratio.low is None else ratio.low > 1,
            )
        )  # fmt: skip
    on = selection.VALIDATION_SET if any(table.VALIDATION in row for row in rows) else selection.TEST_SET
    return Answer(corpus, on, columns, tuple(standings))


def _counts(row: Row) -> bool:
    """Whether a run ended as asked, with a perplexity that a mean can be made of."""
    if row["state"] != "finished" or row["perplexity"] is None:
        return False
    return 0 < table.compared(row) < math.inf


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return sum(every) / len(every) if every else math.inf


def _interval(logs: Sequence[float], level: float) -> Interval:
    """The geometric mean, and Student's interval around it."""
    mean, count = _mean(logs), len(logs)
    if count < 2:
        return Interval(math.exp(mean), None, None)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in logs) / (count - 1))
    reach = quantile(1 - level / 2, count - 1) * deviation / math.sqrt(count)
    return Interval(math.exp(mean), math.exp(mean - reach), math.exp(min(mean + reach, 700.0)))


def _named(setting: Row) -> str:
    """A setting in words: the paper's number says it all of a scheme's training and sampling."""
    known = {name: value for name, value in setting.items() if value is not None}
    if "scheme" in known:
        known.pop("training", None)
        known.pop("sample", None)
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in known.items())
