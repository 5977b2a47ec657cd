"""Every control, and the draw: distributions are distributions, and nothing ruled out is ever drawn."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers import random_tensor
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from unroll.base import randomness
from unroll.base.errors import ConfigurationError
from unroll.experiment.decoding import Decoding
from unroll.sampling.decoding import distribution
from unroll.sampling.pick_token import choose

JUST_BELOW_1 = 1 - 2.0**-53
logits = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 3), st.integers(1, 12)),
    elements=st.floats(-50, 50) | st.sampled_from([0.0, 1.0]),
).map(torch.from_numpy)
different_logits = st.lists(st.integers(-400, 400), min_size=1, max_size=12, unique=True).map(
    lambda values: torch.tensor([values], dtype=torch.float64) / 20
)
decodings = st.builds(
    Decoding,
    temperature=st.sampled_from([0.0, 5e-324, 1e-310]) | st.floats(0.01, 100),
    top_k=st.none() | st.integers(1, 15),
    top_p=st.none() | st.floats(1e-6, 1),
)


@given(decodings, logits)
def test_probabilities_sum_to_one(decoding: Decoding, logits_BV: torch.Tensor) -> None:
    p = distribution(decoding, logits_BV)
    assert p.dtype == torch.float64
    assert (p >= 0).all()
    torch.testing.assert_close(p.sum(-1), torch.ones(len(p)).double(), rtol=0, atol=1e-12)


@given(logits, st.integers(1, 20), st.integers(0, 5))
def test_padding_is_never_given_a_probability(logits_BV: torch.Tensor, k: int, padding: int) -> None:
    padded = torch.cat((logits_BV, torch.full((len(logits_BV), padding), -torch.inf)), -1)
    for decoding in (Decoding(), Decoding(temperature=0.0), Decoding(top_k=k), Decoding(top_p=0.9, temperature=2.0)):
        p = distribution(decoding, padded)
        torch.testing.assert_close(p[:, : logits_BV.shape[1]], distribution(decoding, logits_BV))
        assert (p[:, logits_BV.shape[1] :] == 0).all()


@given(logits)
def test_temperature_zero_is_argmax(logits_BV: torch.Tensor) -> None:
    p = distribution(Decoding(temperature=0.0), logits_BV)
    assert torch.equal(p.argmax(-1), logits_BV.argmax(-1))
    assert (p.max(-1).values == 1).all()


@given(different_logits)
def test_temperature_goes_from_argmax_to_uniform(logits_BV: torch.Tensor) -> None:
    p = distribution(Decoding(temperature=1e-4), logits_BV)
    torch.testing.assert_close(p, distribution(Decoding(temperature=0.0), logits_BV))
    flat = distribution(Decoding(temperature=1e9), logits_BV)
    torch.testing.assert_close(flat, torch.full_like(flat, 1 / flat.shape[1]), rtol=1e-6, atol=0)
    torch.testing.assert_close(distribution(Decoding(), logits_BV), torch.softmax(logits_BV, -1))


@given(different_logits, st.integers(1, 15))
def test_top_k_keeps_the_k_likeliest(logits_BV: torch.Tensor, k: int) -> None:
    kept = distribution(Decoding(top_k=k), logits_BV)[0] > 0
    expected = min(k, logits_BV.shape[1])
    assert int(kept.sum()) == expected
    assert set(kept.nonzero().flatten().tolist()) == set(logits_BV[0].topk(expected).indices.tolist())


def test_ties_with_the_kth_stay() -> None:
    p = distribution(Decoding(top_k=2), torch.tensor([[3.0, 1.0, 1.0, 0.0]]))
    assert (p > 0).tolist() == [[True, True, True, False]]


@given(logits, st.floats(0.01, 1))
def test_top_p_keeps_the_fewest_that_reach_p(logits_BV: torch.Tensor, top_p: float) -> None:
    for full, kept in zip(
        torch.softmax(logits_BV, -1), distribution(Decoding(top_p=top_p), logits_BV) > 0, strict=True
    ):
        # A token so unlikely that its probability vanishes is not missed.
        reach = float(full[kept].sum())
        assert reach >= top_p - 1e-9
        assert reach - float(full[kept].min()) < top_p + 1e-9, "without its least likely token it would not reach p"
        if (~kept).any():
            assert full[kept].min() >= full[~kept].max()


@given(logits)
def test_the_likeliest_token_is_never_ruled_out(logits_BV: torch.Tensor) -> None:
    p = distribution(Decoding(top_k=1, top_p=1e-9), logits_BV)
    assert (p.gather(1, logits_BV.argmax(-1, keepdim=True)) > 0).all()


def drawn(weights_BV: np.ndarray, uniform_B: list[float]) -> list[int]:
    """A token a row, each as likely as its weight."""
    with np.errstate(divide="ignore"):
        logits_BV = np.log(weights_BV)
    return choose(logits_BV, [Decoding()] * len(weights_BV), uniform_B)[0]


@given(
    hnp.arrays(np.float64, st.integers(1, 12), elements=st.sampled_from([0.0, 0.0, 1e-300, 1e-17, 0.1, 0.3, 1.0])),
    st.sampled_from([0.0, 5e-324, 0.5, JUST_BELOW_1]) | st.floats(0, JUST_BELOW_1),
)
def test_a_token_of_probability_0_is_never_drawn(weights: np.ndarray, u: float) -> None:
    if weights.sum() == 0:
        weights[0] = 1.0
    (token,) = drawn(weights[None], [u])
    assert 0 <= token < len(weights)
    assert weights[token] > 0


def test_the_ends_of_the_unit_interval_draw_the_first_and_the_last_possible_token() -> None:
    weights_BV = np.array([[0.0, 0.25, 0.75, 0.0]] * 3)
    assert drawn(weights_BV, [0.0, 0.3, JUST_BELOW_1]) == [1, 2, 2]


@pytest.mark.parametrize("decoding", [Decoding(), Decoding(0.7, top_k=5), Decoding(1.5, top_p=0.8)], ids=str)
def test_draws_follow_the_distribution(decoding: Decoding) -> None:
    p = distribution(decoding, random_tensor(1, 8, seed=3, scale=1.5))
    n = 20_000
    u = torch.from_numpy(randomness.uniform(1, "chi-square", 0, n))
    logits_nV = random_tensor(1, 8, seed=3, scale=1.5).double().expand(n, -1).numpy()
    ids, _ = choose(logits_nV, [decoding] * n, u.tolist())
    counts = np.bincount(ids, minlength=8)
    possible = p[0].numpy() > 0
    expected = n * p[0].numpy()[possible]
    chi_square = ((counts[possible] - expected) ** 2 / expected).sum()
    freedom = possible.sum() - 1
    # Mean ± 4 standard deviations of a chi-square; fixed seeds, so this never flickers.
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)
    assert counts[~possible].sum() == 0


def test_impossible_controls_are_all_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as told:
        Decoding(temperature=-1, top_k=0, top_p=1.5)
    assert len(told.value.problems) == 3
    for value in (math.nan, math.inf):
        with pytest.raises(ConfigurationError, match="temperature"):
            Decoding(temperature=value)


def test_a_decoding_is_a_frozen_value_with_a_field_a_control() -> None:
    decoding = Decoding(0.5, top_k=3)
    assert (decoding.temperature, decoding.top_k, decoding.top_p, decoding.min_p) == (0.5, 3, None, None)
    assert decoding == Decoding(temperature=0.5, top_k=3) != Decoding(0.5)
    for copied in (copy.deepcopy(decoding), pickle.loads(pickle.dumps(decoding))):
        assert copied == decoding
        assert hash(copied) == hash(decoding)
    assert Decoding(temperature=None, top_p=None) == Decoding()
    with pytest.raises(AttributeError, match="does not change"):
        decoding.top_k = 4
    with pytest.raises(TypeError, match=r"no control 'topk'\. Did you mean top_k\?"):
        Decoding(topk=3)
    with pytest.raises(TypeError, match="two values of temperature"):
        Decoding(0.5, temperature=1.0)
    with pytest.raises(AttributeError, match="topk"):
        _ = decoding.topk


def test_a_hash_does_not_travel_to_another_process() -> None:
    decoding = Decoding(0.5, top_k=3)
    code = (
        "import pickle, sys; from unroll import Decoding\n"
        "print({pickle.loads(sys.stdin.buffer.read()): 'found'}.get(Decoding(0.5, top_k=3)))"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, input=pickle.dumps(decoding), capture_output=True).stdout == b"found\n"


@pytest.mark.parametrize(
    ("decoding", "truncates"),
    [
        (Decoding(), False),
        (Decoding(0.3), False),
        (Decoding(top_k=3), True),
        (Decoding(min_p=0.0), True),
        (Decoding(0.0, top_k=3), False),
    ],
    ids=str,
)
def test_what_may_rule_a_token_out_is_known(decoding: Decoding, truncates: bool) -> None:
    assert decoding.truncates is truncates
