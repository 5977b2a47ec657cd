"""The paper's figures as data: which curves each of them holds, and which trainings stand behind them.

    architectures-1, architectures-2    schemes 1 and 2 on four corpora, four architectures, five k1
    schemes, datasets                   four schemes on four corpora, r=1 γ=512, five k1: the same curves, two pictures
    timing                              the table: milliseconds a batch and a token, four schemes, four architectures
    k2                                  Music, four schemes, five k2, three k1 each, against training time
    extras                              what the paper tells of and does not plot, and questions of ours

The pictures show 260 curves of 222 distinct trainings: schemes 1 and 3 share theirs, and Music with k1 = k2 = 100
stands in two figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from unroll.experiment.scheme import SCHEMES

CORPORA = ("english", "finnish", "linux", "music")
ARCHITECTURES = ((1, 128), (1, 512), (2, 128), (2, 512))  # layers r, hidden γ
K1 = (20, 40, 60, 80, 100)
# By k2, the k1 of the paper's last figure: k2, 2·k2/3 and k2/3, rounded.
K1_OF_K2 = {20: (20, 13, 7), 40: (40, 27, 13), 60: (60, 40, 20), 80: (80, 53, 27), 100: (100, 67, 33)}
TIMED_CORPUS, TIMED_K1 = "english", 40
# The paper's table: milliseconds for one training batch and for one sampled token, one run, by scheme, in the order of
# ARCHITECTURES.
PAPERS_DEVICE = "Tesla K40c"
PAPERS_MS = {
    1: ((60.5, 7.0), (138.8, 21.7), (106.5, 13.7), (267.4, 43.3)),
    2: ((46.5, 7.0), (114.6, 21.7), (93.1, 13.7), (245.8, 43.3)),
    3: ((60.5, 0.7), (138.8, 1.2), (106.5, 1.1), (267.5, 2.2)),
    4: ((60.6, 0.7), (138.9, 1.2), (106.6, 1.1), (267.6, 2.2)),
}
# At random: each row starts anew before a batch with this probability, so every 10·k1 tokens on average. Even for
# k1 = 20 that is twice k2, so the state still brings more than a window could. Of 64 rows about six begin at zero in
# every batch, where a reset each epoch shows the model that start once in hundreds or thousands of batches.
RANDOM_RESET = 0.1


@dataclass(frozen=True, order=True)
class Series:
    """One curve before it is measured: a point in the paper's grid."""

    corpus: str
    scheme: int
    layers: int
    hidden: int
    k1: int
    k2: int = 100
    varied: tuple[tuple[str, Any], ...] = ()  # what differs from the paper's defaults, by field, sorted

    @property
    def variant(self) -> dict[str, Any]:
        """The same as a mapping."""
        return dict(self.varied)

    @property
    def train(self) -> str:
        """The training procedure: multi-loss, single-loss or conditional."""
        return SCHEMES[self.scheme].training

    @property
    def sample(self) -> str:
        """The sampling procedure, which is also the column of a record that this curve is read from."""
        return SCHEMES[self.scheme].sample


def series(
    corpora: Iterable[str],
    schemes: Iterable[int],
    architectures: Iterable[tuple[int, int]],
    k1: Iterable[int] = K1,
    k2: int = 100,
    variant: Mapping[str, Any] | None = None,
) -> tuple[Series, ...]:
    """Every combination, in the order of a picture: corpus, scheme, architecture, k1."""
    schemes, architectures, k1, varied = (
        list(schemes),
        list(architectures),
        list(k1),
        tuple(sorted((variant or {}).items())),
    )
    return tuple(
        Series(corpus, scheme, layers, hidden, one, k2, varied)
        for corpus in corpora
        for scheme in schemes
        for layers, hidden in architectures
        for one in k1
    )


SMALLER = 16  # times fewer units at a scale below 1


def units(number: int, scale: float) -> int:
    """How many units a model of the paper has at this scale."""
    return number if scale == 1 else number // SMALLER


BEST = ((1, 512),)  # the architecture that the paper goes on with

# What the paper says in words and does not plot: 70 trainings.
UNPLOTTED = (
    *series(["music"], [1], [(1, 512), (2, 512)], variant={"dropout": 0.25}),
    *series(["finnish"], [1], [(1, 128), (2, 128)], variant={"learning_rate": 0.0001}),
    *series(["finnish"], [1], [(1, 128), (2, 128)], variant={"optimiser": "rmsprop"}),
    *series(CORPORA, [1, 2, 3], BEST, variant={"shuffle": True}),
)
# Why does conditional training look unstable? The first is the paper's own setting: forget bias 0, its peepholes, the
# state reset each epoch. Its training is that of `schemes`; here it is also scored from the states that it carries.
QUESTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"forget_bias": 5.0},
    {"peepholes": "lasagne"},
    {"peepholes": "off"},
    {"reset": "never"},
    {"reset": "never", "rotation": "continue"},
    {"reset": RANDOM_RESET},
)
OURS = tuple(one for variant in QUESTIONS for one in series(CORPORA, [4], BEST, variant=variant))

_SCHEMES = series(CORPORA, SCHEMES, BEST)
FIGURES: dict[str, tuple[Series, ...]] = {
    "architectures-1": series(CORPORA, [1], ARCHITECTURES),
    "architectures-2": series(CORPORA, [2], ARCHITECTURES),
    "schemes": _SCHEMES,
    "datasets": _SCHEMES,
    "timing": (),  # no curves: see TABLE
    "k2": tuple(one for k2, k1 in K1_OF_K2.items() for one in series(["music"], SCHEMES, BEST, k1, k2)),
    "extras": (*UNPLOTTED, *OURS),
}
PAPER = ("architectures-1", "architectures-2", "schemes", "datasets", "timing", "k2")  # all but extras
# The rows and columns of the paper's table.
TABLE = series([TIMED_CORPUS], SCHEMES, ARCHITECTURES, [TIMED_K1])


def training(one: Series) -> Series:
    """A training, as one of its curves: the first scheme that trains alike, since drawing tokens changes no weights."""
    return replace(one, scheme=next(number for number, s in SCHEMES.items() if s.training == one.train))


def trainings(names: Iterable[str]) -> tuple[Series, ...]:
    """The distinct trainings behind figures."""
    return tuple(dict.fromkeys(training(one) for name in names for one in FIGURES[name]))


def drawn(names: Iterable[str] = PAPER) -> tuple[tuple[str, Series], ...]:
    """The curves of pictures with their axis, `sequences` or `seconds`. One curve on both axes counts as two."""
    return tuple(
        dict.fromkeys(("seconds" if name == "k2" else "sequences", one) for name in names for one in FIGURES[name])
    )
