"""Invented records: a world in which every claim of the paper is true, with a knob for each claim.

A test turns one knob and sees the claim turn. The numbers are plausible, so that pictures of them look like pictures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from unroll.studies.paper.figures import ARCHITECTURES, FIGURES, K1, TABLE, Series
from unroll.studies.paper.records import Curve, Record, Time, significant

GRID = sorted({round(12800 ** (i / 39)) for i in range(40)})
START = 90.0
MS = {(1, 128): 60.5, (1, 512): 138.8, (2, 128): 106.5, (2, 512): 267.4}
TOKEN_MS = {(1, 128): (7.0, 0.7), (1, 512): (21.7, 1.2), (2, 128): (13.7, 1.1), (2, 512): (43.3, 2.2)}
GAIN = {(1, 128): 0.23, (1, 512): 0.17, (2, 128): 0.13, (2, 512): 0.08}


@dataclass(frozen=True)
class World:
    """The facts of a world. The defaults are the paper's own words."""

    optimum: dict[str, float] = field(
        default_factory=lambda: {"english": 3.9, "finnish": 3.8, "linux": 3.7, "music": 11.5}
    )
    slowness: dict[str, float] = field(
        default_factory=lambda: {"english": 2.6, "finnish": 2.6, "linux": 2.6, "music": 3.2}
    )
    level: dict[int, float] = field(default_factory=lambda: {1: 1.0, 2: 1.01, 3: 1.02, 4: 1.03})
    # Between k1 = 20 and k1 = 100, by scheme, in logarithms.
    spread: dict[int, float] = field(default_factory=lambda: {1: 0.02, 2: 0.03, 3: 0.04, 4: 0.05})
    wiggle: dict[int, float] = field(default_factory=lambda: {1: 0.12, 2: 0.0, 3: 0.12, 4: 0.12})
    diverging: dict[str, int] = field(
        default_factory=lambda: {"english": 2, "finnish": 1, "linux": 2, "music": 5}
    )  # of five k1
    tokens_count: bool = False  # learning goes by tokens read instead of by batches
    narrow_early: float = 1.2  # how much worse γ=128 is at first
    deep_late: float = 1.3  # how much more r=2 needs later
    deep_end: float = 1.02
    opposite: bool = False  # scheme 2 turns what is said of architectures round
    overfitting: float = 0.5  # in logarithms, on Music with γ=512
    with_dropout: float = 0.1
    bump: dict[str, float] = field(default_factory=lambda: {"": 1.4, "learning_rate": 1.2, "optimiser": 1.15})
    shuffled: float = 1.0
    gain: dict[tuple[int, int], float] = field(default_factory=lambda: dict(GAIN))
    carrying: float = 1.001  # what a conditional batch costs
    naive: float = 1.0  # times the paper's time of a token
    k1_costs: float = 0.01
    k2_costs: bool = True
    k2_optimum: float = 0.0  # what the shortest k2 loses, in logarithms
    short_noise: float = 1.3
    short_single: float = 1.4  # how far scheme 2 jumps for k2 ≤ 40
    ends_350: tuple[float, float, float] = (350.0, 340.0, 30.0)
    steady: bool = False  # scheme 4 on k2 as quiet as scheme 3
    seed_noise: float = 0.01

    def perplexity(self, one: Series, batch: int, seed: int = 0) -> float:
        """A curve that falls from START to an optimum, and all that the claims say about it."""
        slow = self.slowness[one.corpus] if one.scheme == 2 else 1.0
        slow *= 1.5 if one.corpus == "music" else 1.0
        side = -1 if self.opposite and one.scheme == 2 else 1
        if one.layers == 2 and batch > 113:
            slow *= self.deep_late**side
        effort = batch * (one.k1 / 40 if self.tokens_count else 1.0)
        floor = math.log(self.optimum[one.corpus] * self.level[one.scheme])
        floor += side * (one.layers == 2) * math.log(self.deep_end)
        height = (math.log(START) - floor) / (1 + effort / (25 * slow)) ** 1.2
        value = floor + height
        if one.hidden == 128 and 5 < batch <= 113:
            value += side * math.log(self.narrow_early)
        rank = (K1.index(one.k1) if one.k1 in K1 else 2) / (len(K1) - 1)
        if batch >= 60:
            value += self.spread[one.scheme] * rank
        value += self.wiggle[one.scheme] * (-1) ** GRID.index(batch) * (20 < batch < 90)
        value += self._events(one, batch, rank)
        value += self.seed_noise * math.sin(seed * 7.0 + one.k1 + one.scheme)
        return math.exp(value)

    def _events(self, one: Series, batch: int, rank: float) -> float:
        variant, nats = one.variant, 0.0
        if one.corpus == "music" and one.hidden == 512 and batch > 3000:
            # Single-loss sees a hundredth of the labels: it has not overfitted yet, as the paper's has not.
            part = 0.0 if one.scheme == 2 else self.with_dropout if "dropout" in variant else self.overfitting
            nats += part * math.log(batch / 3000) / math.log(12800 / 3000)
        if one.corpus == "finnish" and one.hidden == 128 and batch == 18:
            nats += math.log(self.bump[next(iter(variant), "")]) + 0.7 * (self.bump[""] > 1)
        if variant.get("shuffle") and batch >= 60:
            nats += math.log(self.shuffled) * (1 if one.scheme == 1 else -1)
        diverges = one.scheme == 4 and one.k2 == 100 and one.k1 in K1[: self.diverging[one.corpus]]
        if diverges and batch > 250:
            nats += 0.5 + 0.2 * (-1) ** GRID.index(batch)
        return nats + self._short(one, batch)

    def _short(self, one: Series, batch: int) -> float:
        """What the figure k2 shows of windows shorter than 100."""
        nats = 0.0
        short = one.k2 < 100 or one.k1 not in K1
        if one.k2 == 20:
            nats += self.k2_optimum
            if one.scheme in (1, 3) and batch in (62, 100, 163):
                nats += math.log(self.short_noise) * (2 if batch == 100 else 0)
            if one.scheme == 3:
                nats += 0.15 * (one.k1 == 7) * (60 < batch < 1200)
        if one.scheme == 2 and one.k2 <= 40 and GRID.index(batch) % 4 == 0 and batch > 300:
            nats += math.log(self.short_single)
        if one.scheme == 4 and short and batch > 250 and not self.steady:
            nats += 0.4 + 0.2 * (-1) ** GRID.index(batch)
        if one.scheme == 4 and one.k2 == 20 and batch == 12800:
            index = (20, 13, 7).index(one.k1)
            return nats + math.log(self.ends_350[index] / self.optimum["music"]) - 1.1
        return nats


PAPER = World()


def curve(world: World, one: Series, seed: int = 0) -> Curve:
    """One curve of a world."""
    windowed = [world.perplexity(one, batch, seed) for batch in GRID]
    ms = MS[one.layers, one.hidden] * (one.k2 / 100 if world.k2_costs else 1.0)
    ms *= 1 - world.gain[one.layers, one.hidden] if one.scheme == 2 else 1.0
    points = {
        "batch": GRID,
        "sequences": [64 * batch for batch in GRID],
        "loss": [significant(4.5 / (1 + batch / 500) ** 0.3, 6) for batch in GRID],
        "windowed": [None] * len(GRID),
        "progressive": [None] * len(GRID),
        "seconds": [significant(batch * ms / 1000, 4) for batch in GRID],
    }
    points[one.sample] = [significant(value, 6) for value in windowed]
    reconstruction = "" if one.corpus == "linux" else " (reconstruction)"
    return Curve(
        corpus=one.corpus,
        title=one.corpus + reconstruction,
        sha256="0" * 64,
        scheme=one.scheme,
        train=one.train,
        sample=one.sample,
        layers=one.layers,
        hidden=one.hidden,
        k1=one.k1,
        k2=one.k2,
        seed=seed,
        batches=12800,
        rows=64,
        variant=one.variant,
        identity=f"{one.corpus}-{one.train}-{one.layers}-{one.hidden}-{one.k1}-{one.k2}-{sorted(one.variant)}-{seed}",
        state="finished",
        reason=None,
        stopped_at=None,
        fleet=20,
        kernel="persistent",
        precision="bfloat16",
        device="a made-up GPU",
        evaluating=1.0,
        points=points,
        epoch=20000 // one.k1,
    )


def times(world: World) -> tuple[tuple[Time, ...], tuple[Time, ...]]:
    """The timing table, and its first row for every k1."""
    every = []
    for one in TABLE:
        cell = one.layers, one.hidden
        naive, progressive = TOKEN_MS[cell]
        ms = MS[cell] * {2: 1 - world.gain[cell], 4: world.carrying}.get(one.scheme, 1.0)
        sample = {"windowed_naive": naive * world.naive, "windowed": 2 * progressive, "progressive": progressive}
        every += [
            Time(one.scheme, *cell, fleet, ms / fleet**0.5, sample, "a made-up GPU", "bfloat16") for fleet in (1, 16)
        ]
    by_k1 = [
        Time(1, *cell, 1, MS[cell] * (1 + world.k1_costs * k1 / 100), {}, "a made-up GPU", "bfloat16", k1)
        for cell in ARCHITECTURES
        for k1 in K1
    ]
    return tuple(every), tuple(by_k1)


def records(
    world: World = PAPER, seeds: tuple[int, ...] = (0,), scale: float = 1.0, figures: Iterable[str] = FIGURES
) -> dict[str, Record]:
    """The records of a world, all seven unless some are named."""
    table, by_k1 = times(world)
    made = {}
    for figure in figures:
        curves = tuple(curve(world, one, seed) for one in FIGURES[figure] for seed in seeds)
        made[figure] = Record(figure, scale, seeds, "0.2", curves)
    if "timing" in made:
        made["timing"] = replace(made["timing"], times=table, k1_times=by_k1)
    return made
