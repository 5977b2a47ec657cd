"""Choosing in NumPy is choosing as `decoding` does, for each row by its own controls and random number."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unroll.base import randomness
from unroll.experiment.decoding import Decoding
from unroll.sampling.decoding import distribution
from unroll.sampling.pick_token import BLOCK, Uniforms, choose

MILLION = 1_000_000
CONTROLS = {
    "plain": Decoding(),
    "temperature": Decoding(0.6),
    "hot": Decoding(2.5),
    "top-k": Decoding(top_k=4),
    "top-p": Decoding(top_p=0.7),
    "min-p": Decoding(min_p=0.2),
    "all": Decoding(0.8, top_k=8, top_p=0.95, min_p=0.05),
}
LOGITS = np.random.default_rng(3).normal(0, 0.9, 12)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_million_draws_follow_the_tempered_and_truncated_distribution(name: str) -> None:
    decoding = CONTROLS[name]
    u = randomness.uniform(11, name, 0, MILLION)
    counts = np.zeros(len(LOGITS))
    for part in np.split(u, 10):
        ids, _ = choose(np.tile(LOGITS, (len(part), 1)), [decoding] * len(part), part)
        counts += np.bincount(ids, minlength=len(LOGITS))
    p = expected_by_hand(decoding)
    possible = p > 0
    assert counts[~possible].sum() == 0
    expected = MILLION * p[possible]
    chi_square = ((counts[possible] - expected) ** 2 / expected).sum()
    freedom = possible.sum() - 1
    # Mean ± 4 standard deviations of a chi-square; fixed seeds, so this never flickers.
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)
    wrong = np.full(possible.sum(), MILLION / possible.sum())
    assert ((counts[possible] - wrong) ** 2 / wrong).sum() > 100 * freedom, "the test can tell another distribution"


def expected_by_hand(decoding: Decoding) -> np.ndarray:
    """The same controls, each as its definition reads: temperature, top-k, top-p, min-p, normalised in between."""
    p = np.exp(LOGITS / decoding.temperature)
    p /= p.sum()
    ranked = np.argsort(-p)
    if decoding.top_k:
        p[ranked[decoding.top_k :]] = 0
        p /= p.sum()
    if decoding.top_p:
        needed = next(n for n in range(1, len(p) + 1) if p[ranked[:n]].sum() >= decoding.top_p)
        p[ranked[needed:]] = 0
        p /= p.sum()
    if decoding.min_p:
        p[p < decoding.min_p * p.max()] = 0
        p /= p.sum()
    return p


@given(st.integers(0, 10**6), st.sampled_from(sorted(CONTROLS)))
def test_numpy_and_torch_choose_the_same_token(seed: int, name: str) -> None:
    generator = np.random.default_rng(seed)
    logits_BV, u = generator.normal(0, 2, (6, 9)), generator.random(6)
    ids, logprobs = choose(logits_BV, [CONTROLS[name]] * 6, u)
    p_BV = distribution(CONTROLS[name], torch.from_numpy(logits_BV))
    cumulative_BV = p_BV.cumsum(-1)
    below = torch.from_numpy(u).unsqueeze(-1) * cumulative_BV[:, -1:]
    assert ids == torch.searchsorted(cumulative_BV, below, right=True).squeeze(-1).tolist()
    own = torch.log_softmax(torch.from_numpy(logits_BV), -1)[torch.arange(6), ids]
    assert np.allclose(logprobs, own, rtol=0, atol=1e-12)


@given(st.integers(0, 10**6))
def test_rows_with_different_controls_choose_as_each_alone(seed: int) -> None:
    generator = np.random.default_rng(seed)
    decodings = [*CONTROLS.values(), Decoding(0.0), *CONTROLS.values()]
    logits_BV, u = generator.normal(0, 2, (len(decodings), 9)), generator.random(len(decodings))
    together = choose(logits_BV, decodings, u)
    for b, decoding in enumerate(decodings):
        alone = choose(logits_BV[b : b + 1], [decoding], u[b : b + 1])
        assert (together[0][b], together[1][b]) == (alone[0][0], alone[1][0])


@pytest.mark.parametrize("u", [0.0, 5e-324, 0.5, 1 - 2.0**-53])
def test_a_symbol_of_probability_0_is_never_chosen(u: float) -> None:
    logits_BV = np.array([[-np.inf, -np.inf, 0.0, -800.0, 1.0, -np.inf]])
    (token,), _ = choose(logits_BV, [Decoding()], [u])
    assert token in (2, 4)


def test_the_smallest_of_temperatures_is_argmax() -> None:
    logits_BV = np.array([[1.0, 3.0, 2.0]])
    with np.errstate(over="ignore"):
        (token,), _ = choose(logits_BV, [Decoding(5e-324)], [0.999])
    assert token == 1


def test_random_numbers_made_in_blocks_are_those_made_one_by_one() -> None:
    for seed in (0, 7, 2**63 - 1):
        uniforms = Uniforms(seed)
        for step in range(BLOCK + 3):
            assert next(uniforms) == randomness.uniform(seed, "sample", step, 1)[0]


def test_blocks_go_on_past_32_bits_of_steps() -> None:
    first = 2**32 - 2
    block = randomness.first_uniforms(5, "sample", first, 4)
    assert block.tolist() == [randomness.uniform(5, "sample", first + n, 1)[0] for n in range(4)]
