"""Randomness is Philox-4x32-10, the same in NumPy and torch, and a pure function of what it is keyed by."""

from __future__ import annotations

import math
import subprocess
import sys

import helpers  # noqa: F401 (its hypothesis profile)
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unroll.base import randomness
from unroll.base.randomness import below, normal, permutation, philox, uniform, words

FF = 0xFFFFFFFF
# Known answers published with Random123.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((FF, FF, FF, FF), (FF, FF), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
seeds, batches = st.integers(0, 2**63 - 1), st.integers(0, 2**40)
counts = st.integers(0, 70)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_the_published_answers_come_out(counter: tuple, key: tuple, answer: tuple) -> None:
    in_numpy = philox(tuple(np.full(1, c, np.int64) for c in counter), tuple(np.full(1, k, np.int64) for k in key))
    assert tuple(int(word[0]) for word in in_numpy) == answer
    in_torch = philox(tuple(torch.tensor([c]) for c in counter), tuple(torch.tensor([k]) for k in key))
    assert tuple(int(word[0]) for word in in_torch) == answer


@given(st.lists(st.tuples(*[st.integers(0, FF)] * 6), min_size=1, max_size=20))
def test_numpy_and_torch_agree_bit_for_bit(blocks: list[tuple[int, ...]]) -> None:
    columns = np.array(blocks, np.int64).T
    in_numpy = philox(tuple(columns[:4]), tuple(columns[4:]))
    held = [torch.from_numpy(c.copy()) for c in columns]
    in_torch = philox(tuple(held[:4]), tuple(held[4:]))
    for a, b in zip(in_numpy, in_torch, strict=True):
        assert np.array_equal(a, b.numpy())
        assert a.min() >= 0
        assert a.max() <= FF


@given(seeds, batches, counts, counts)
def test_fewer_draws_are_the_beginning_of_more(seed: int, batch: int, n: int, more: int) -> None:
    for draws in (words, uniform, normal):
        longer = draws(seed, "purpose", batch, n + more)
        assert len(longer) == n + more
        assert np.array_equal(draws(seed, "purpose", batch, n), longer[:n])


@given(seeds, batches)
def test_seed_purpose_and_batch_each_change_every_draw(seed: int, batch: int) -> None:
    one = words(seed, "a", batch, 8)
    others = [words(seed ^ 1, "a", batch, 8), words(seed ^ 2**40, "a", batch, 8), words(seed, "b", batch, 8)]
    others += [words(seed, "a", batch + 1, 8), words(seed, "a", batch + 2**33, 8)]
    assert all((one != other).all() for other in others)


def test_no_two_purposes_in_use_share_a_counter() -> None:
    gates = [f"layers.{layer}.{w}.{g}" for layer in range(9) for w in ("W_x", "W_h") for g in range(4)]
    used = ["split", "shuffle", "rotation", "reset", "sample", "seed sequence", "dropout.dense", "dropout.out"]
    purposes = [*gates, *used, "dense.W", "out.W", *(f"layers.{layer}.w_c" for layer in range(9))]
    assert len({randomness.purpose_word(p) for p in purposes}) == len(purposes)


def test_uniform_draws_fill_the_unit_interval_evenly() -> None:
    n = 100_000
    draws = uniform(3, "test", 0, n)
    assert draws.min() >= 0.0
    assert draws.max() < 1.0
    cells = np.bincount((draws * 100).astype(int), minlength=100)
    chi_square = ((cells - n / 100) ** 2 / (n / 100)).sum()
    assert abs(chi_square - 99) < 4 * math.sqrt(2 * 99)
    ordered = np.sort(draws)
    assert np.abs(ordered - (np.arange(n) + 0.5) / n).max() < 1.9 / math.sqrt(n)  # Kolmogorov and Smirnov, p = 0.002
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 4 / math.sqrt(n)


def test_every_bit_of_a_word_is_set_half_of_the_time() -> None:
    n = 40_000
    bits = (words(5, "bits", 0, n)[:, None] >> np.arange(32)) & 1
    assert np.abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / math.sqrt(n)


def test_normal_draws_are_standard_normal() -> None:
    n = 100_000
    draws = normal(3, "test", 0, n)
    assert np.isfinite(draws).all()
    assert abs(draws.mean()) < 4 / math.sqrt(n)
    assert abs(draws.var() - 1) < 4 * math.sqrt(2 / n)
    assert abs((draws**4).mean() - 3) < 4 * math.sqrt(96 / n)


@given(seeds, batches, st.integers(1, 10**12))
def test_below_is_below(seed: int, batch: int, limit: int) -> None:
    assert 0 <= below(seed, "x", batch, limit) < limit


def test_below_reaches_every_value_alike() -> None:
    counts = np.bincount([below(0, "x", batch, 7) for batch in range(7000)], minlength=7)
    assert np.abs(counts - 1000).max() < 4 * math.sqrt(1000)


def in_order(seed: int, batch: int, count: int) -> np.ndarray:
    """What a permutation is: places by key, of equal keys the first first."""
    return np.argsort(uniform(seed, "x", batch, count), kind="stable")


@given(seeds, batches, st.one_of(st.integers(0, 50), st.integers(0, 40_000)))
def test_a_permutation_sorts_by_what_is_drawn_uniformly(seed: int, batch: int, count: int) -> None:
    order = permutation(seed, "x", batch, count)
    assert order.dtype == np.int32
    assert np.array_equal(order, in_order(seed, batch, count))


@pytest.mark.parametrize("edge", [randomness.BUCKET, randomness.STRETCH, 2 * randomness.STRETCH])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_permutation_is_the_same_where_its_parts_end(edge: int, more: int) -> None:
    assert np.array_equal(permutation(3, "x", 1, edge + more), in_order(3, 1, edge + more))


def test_of_equal_keys_a_permutation_takes_the_first_first(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = randomness.philox

    def coarse(counter: tuple, key: tuple) -> tuple:
        return tuple(
            word & ~((1 << 24) - 1) & FF if n % 2 == 0 else word * 0 for n, word in enumerate(whole(counter, key))
        )

    monkeypatch.setattr(randomness, "philox", coarse)  # 256 different keys
    assert len(np.unique(uniform(3, "x", 1, 30_000))) == 256
    assert np.array_equal(permutation(3, "x", 1, 30_000), in_order(3, 1, 30_000))


PEAK = """
import resource, sys, tracemalloc
from unroll.base.randomness import permutation

permutation(1, "x", 0, 1000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tracemalloc.start() if sys.argv[2] == "traced" else None
permutation(1, "x", 0, int(sys.argv[1]))
traced = tracemalloc.get_traced_memory()[1]
print(traced or 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


@pytest.mark.parametrize(
    ("count", "how"),
    [(2_000_000, "traced"), pytest.param(50_000_000, "resident", marks=pytest.mark.slow)],
)
def test_a_permutation_costs_four_bytes_a_number_and_no_more_than_its_parts(count: int, how: str) -> None:
    done = subprocess.run([sys.executable, "-c", PEAK, str(count), how], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 4 * count + 24e6


@given(seeds, batches, st.integers(0, 50))
def test_a_permutation_holds_each_number_once(seed: int, batch: int, count: int) -> None:
    assert sorted(permutation(seed, "x", batch, count)) == list(range(count))


def test_keys_of_several_runs_at_once_give_each_runs_own_words() -> None:
    """A run's draws are the same alone (M = 1) and among others: the run axis is broadcasting and nothing else."""
    run_seeds, purpose, batch = [0, 7, 2**40 + 3], "dropout.dense", 12
    blocks = torch.arange(5)
    keys = torch.tensor([randomness.seed_words(seed) for seed in run_seeds])
    counter = (blocks, torch.tensor([batch]), torch.tensor([randomness.purpose_word(purpose)]), torch.tensor([0]))
    together = torch.stack(philox(counter, (keys[:, :1], keys[:, 1:])), -1).view(len(run_seeds), -1)
    for row, seed in zip(together, run_seeds, strict=True):
        assert np.array_equal(row.numpy(), words(seed, purpose, batch, 20))
