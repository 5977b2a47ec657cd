"""A sweep killed again and again ends with the same table, bit for bit, and never runs a finished run twice."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
import sweeping
from sweeping import SAVE_EVERY, SweepJob

from unroll.sweep.folder import SweepFolder

# Schemes 1 and 3 share their trainings: 2 × 2 × 2 = 8 runs, and 3 × 4 × 5 = 60; two and twelve fleets.
FEW = {"scheme": [1, 2, 3], "k1": [2, 4], "seed": range(2)}
MANY = {"scheme": [1, 2, 3, 4], "k1": [2, 3, 4, 9], "seed": range(5)}


def check_killed(folder: Path, settings: dict[str, Any], runs: int, kills: int) -> None:
    """Compare a sweep that was killed at random moments with one that was not."""
    chosen = tuple(settings.items())
    whole = sweeping.run(SweepJob(str(folder / "whole"), chosen))
    assert (whole.code, whole.raised) == (0, None)
    moments, drawn = whole.start or 0, random.Random(runs)
    killed, plan = folder / "killed", None
    stamps: dict[tuple[str, str], tuple[int, int]] = {}
    before: tuple[str, int] | None = None  # the fleet that was at work when the last kill came, and its batch
    for life in range(kills + 1):
        at = 0 if life == kills else drawn.randint(1, moments // (kills + 1))
        done = sweeping.ended(killed)
        stamps |= sweeping.stamps(killed, done)
        outcome = sweeping.run(SweepJob(str(killed), chosen, at))
        assert outcome.raised is None
        assert outcome.killed == (at > 0), outcome
        plan = SweepFolder(killed).plan if (killed / "plan.json").exists() else None
        fleets = {own.name: own.runs for own in plan.fleets} if plan else {}
        assert not [name for name, _ in outcome.begun if done.issuperset(fleets[name])]
        if before and outcome.begun and outcome.begun[0][0] == before[0]:
            assert outcome.begun[0][1] >= before[1] - SAVE_EVERY
        before = (outcome.begun[-1][0], outcome.moment[1]) if outcome.begun and outcome.moment else None
    assert len(sweeping.ended(killed)) == runs
    # A run that had ended was neither written again nor replaced.
    assert {key: sweeping.stamps(killed, {key[0]}).get(key) for key in stamps} == stamps
    assert sweeping.result(killed) == sweeping.result(folder / "whole")


def test_a_sweep_of_8_runs_killed_3_times_ends_bit_for_bit_as_one_that_was_not(tmp_path: Path) -> None:
    check_killed(tmp_path, FEW, runs=8, kills=3)


@pytest.mark.slow
def test_a_sweep_of_60_runs_killed_10_times_ends_bit_for_bit_as_one_that_was_not(tmp_path: Path) -> None:
    check_killed(tmp_path, MANY, runs=60, kills=10)


@pytest.mark.slow
def test_a_sweep_killed_at_each_of_its_first_moments_ends_bit_for_bit_as_one_that_was_not(tmp_path: Path) -> None:
    """Between and within the writing of sweep.json, plan.json and every folder of the first fleet."""
    chosen = (("scheme", 2), ("k1", 4), ("seed", (0, 1)))
    sweeping.run(SweepJob(str(tmp_path / "whole"), chosen))
    for at in range(1, 45):
        folder = tmp_path / str(at)
        assert sweeping.run(SweepJob(str(folder), chosen, at)).killed
        outcome = sweeping.run(SweepJob(str(folder), chosen))
        assert (outcome.code, outcome.raised) == (0, None), at
        assert sweeping.result(folder) == sweeping.result(tmp_path / "whole"), at


@pytest.mark.slow
def test_a_sweep_killed_from_outside_at_random_times_ends_bit_for_bit_as_one_that_was_not(tmp_path: Path) -> None:
    chosen, drawn, kills, began = tuple(FEW.items()), random.Random(1), 0, time.perf_counter()
    sweeping.run(SweepJob(str(tmp_path / "whole"), chosen))
    seconds = min(0.4, (time.perf_counter() - began) / 3)  # however fast this machine is, a few lives
    while (
        outcome := sweeping.run(SweepJob(str(tmp_path / "killed"), chosen), drawn.uniform(seconds / 4, seconds))
    ).killed:
        kills, seconds = kills + 1, seconds + 0.02
    assert (outcome.code, outcome.raised) == (0, None)
    assert kills > 1
    assert sweeping.result(tmp_path / "killed") == sweeping.result(tmp_path / "whole")
