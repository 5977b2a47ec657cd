"""What is trained, as data.

    weights     which positions of a window carry a loss: k3, linear and exponential decay; learned first state
    states      where a window's first state comes from: zeros, carried with every kind of reset
    splits      the paper's three training procedures on five splits of each text, γ = 128
    gaps        k1 above k2
    normalised  the decays again, their weights divided by their sum
    crossed     weights × states, γ = 128
    ngrams      counts on the same five splits: no training

k1 is 40 everywhere but in `gaps`. The paper and its reproduction agree that k1 changes a model less than the scheme
does (claim C7), each k1 would double the study, and 40 is the k1 of the paper's own table.
"""

from __future__ import annotations

from dataclasses import dataclass

K1, K2 = 40, 100
FAR = 200  # k1 above k2: half of the text is never trained on
K3 = (2, 5, 10, 25, 50)  # besides 1, which is single-loss, and 100, which is multi-loss
RESETS = (0.01, 0.1, 0.5)
SPLITS = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Setting:
    """A point of the plane, in the words of `--train`, with its k1."""

    train: str
    k1: int = K1

    @property
    def name(self) -> str:
        """A short name, different for every setting."""
        return self.train if self.k1 == K1 else f"{self.train} k1={self.k1}"


@dataclass(frozen=True)
class Part:
    """Settings that are trained on every corpus."""

    settings: tuple[Setting, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    splits: tuple[int, ...] = (0,)
    is_narrow: bool = False  # trained with fewer units


LEARNED = "multi-loss"
ZERO = "loss=equal,state=zero"
NARROWEST = "single-loss"


def settings(*trains: str, k1: int = K1) -> tuple[Setting, ...]:
    """A setting for each of these."""
    return tuple(Setting(train, k1) for train in trains)


def conditional(reset: str | float) -> str:
    """The carried state, reset like this."""
    return "conditional" if reset == "epoch" else f"conditional,reset={reset}"


def _crossed() -> tuple[Setting, ...]:
    losses = ("equal,k3=10", "equal,k3=50", "equal", "linear")
    states = ("learned", "zero", "carried,reset=never", "carried,reset=0.1")
    trains = []
    for loss in losses:
        for state in states:
            name, _, k3 = loss.partition(",")
            origin, _, reset = state.partition(",")
            trains.append(",".join(filter(None, (f"loss={name}", f"state={origin}", k3, reset))))
    return settings(*trains)


PARTS: dict[str, Part] = {
    "weights": Part(
        settings(
            NARROWEST,
            *(f"multi-loss,k3={k3}" for k3 in K3),
            LEARNED,
            "multi-loss,decay=linear",
            "multi-loss,decay=exponential",
        )
    ),
    "states": Part(settings(ZERO, *(conditional(reset) for reset in ("epoch", "never", *RESETS)))),
    "splits": Part(settings(LEARNED, NARROWEST, "conditional"), (0, 1), SPLITS, is_narrow=True),
    "gaps": Part(settings(LEARNED, conditional(0.1), k1=FAR)),
    "normalised": Part(settings("multi-loss,decay=linear,normalise", "multi-loss,decay=exponential,normalise")),
    "crossed": Part(_crossed(), is_narrow=True),
}
NGRAMS = "ngrams"
NAMES = (*PARTS, NGRAMS)
