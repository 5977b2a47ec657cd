"""The sources are what they say, and their entropy rates are the truth."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unroll.base.errors import ConfigurationError
from unroll.corpus.synthetic import SOURCES, Brackets, Copy, Markov, Source

TOKENS = 300_000
VARIED = [
    *SOURCES.values(),
    Markov(symbols=3, order=2, chain=7),
    Markov(symbols=12, concentration=2.0, chain=1),
    Markov(symbols=2, concentration=0.3, chain=2),
    Brackets(kinds=2, depth=1),
    Brackets(kinds=4, depth=3, open_probability=0.7),
    Brackets(kinds=2, depth=20, open_probability=0.3),
    Copy(symbols=2, noise=1, gaps=(0, 0)),
    Copy(symbols=26, noise=3, gaps=(0, 5)),
    Copy(symbols=5, noise=26, gaps=(7, 9)),
]
every_source = pytest.mark.parametrize("source", VARIED, ids=str)

markovs = st.builds(
    Markov,
    symbols=st.integers(2, 26),
    order=st.integers(1, 2),
    concentration=st.floats(0.1, 10),
    chain=st.integers(0, 2**64 - 1),
)
brackets = st.builds(
    Brackets, kinds=st.integers(2, 4), depth=st.integers(1, 100), open_probability=st.floats(0.01, 0.99)
)
copies = st.builds(
    Copy,
    symbols=st.integers(2, 26),
    noise=st.integers(1, 26),
    gaps=st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: (min(pair), max(pair))),
)
sources = st.one_of(markovs, brackets, copies)
seeds = st.integers(0, 2**64 - 1)
lengths = st.integers(0, 500)
unhurried = settings(deadline=None, max_examples=60)


def alphabet(source: Source) -> set[str]:
    match source:
        case Markov():
            return set("abcdefghijklmnopqrstuvwxyz"[: source.symbols])
        case Brackets():
            return set("()[]{}<>"[: 2 * source.kinds])
        case Copy():
            capitals, small = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
            return {"!", "?", *capitals[: source.symbols], *small[: source.noise]}
    raise TypeError(source)


def stacks(text: str) -> list[str]:
    """The brackets open before each token and after the last; a closing that does not match raises."""
    open_now, seen = "", [""]
    for token in text:
        if token in "([{<":
            open_now += token
        else:
            assert open_now[-1] + token in {"()", "[]", "{}", "<>"}
            open_now = open_now[:-1]
        seen.append(open_now)
    return seen


def generating_states(source: Source, text: str) -> list[Hashable]:
    """All that decides the odds of each token: what was drawn before it, read off the text alone."""
    match source:
        case Markov():
            return [text[max(0, at - source.order) : at] for at in range(len(text))]
        case Brackets():
            return [(len(stack), stack[-1:]) for stack in stacks(text)[:-1]]
        case Copy():
            states: list[Hashable] = []
            for record in text.split("!")[1:]:
                # Before the marker, the symbol, each token of the gap, and the answer.
                query = record.index("?") if "?" in record else len(record)
                states += ["marker", "symbol", *range(query), "answer " + record[:1]][: 1 + len(record)]
            return states
    raise TypeError(source)


def conditional_entropy(states: list[Hashable], text: str) -> float:
    """Nats a token, from how often each token followed each state."""
    pairs, totals = Counter(zip(states, text, strict=True)), Counter(states)
    return sum(n * math.log(totals[state] / n) for (state, _), n in pairs.items()) / len(text)


@every_source
def test_the_entropy_rate_is_that_of_a_long_text_given_its_generating_state(source: Source) -> None:
    text = source.text(TOKENS, seed=3)
    assert conditional_entropy(generating_states(source, text), text) == pytest.approx(source.entropy_rate, rel=0.01)


@every_source
def test_the_same_seed_gives_the_same_text_and_another_seed_another(source: Source) -> None:
    assert source.text(1000, seed=1) == source.text(1000, seed=1)
    assert len({source.text(1000, seed) for seed in range(5)}) == 5


@every_source
def test_a_long_text_uses_the_whole_alphabet(source: Source) -> None:
    if source == Copy(symbols=2, noise=1, gaps=(0, 0)):
        assert set(source.text(TOKENS)) == {"!", "?", "A", "B"}  # No gap, no noise.
    else:
        assert set(source.text(TOKENS)) == alphabet(source)


@unhurried
@given(sources, lengths, seeds)
def test_a_text_has_exactly_the_tokens_asked_for_all_of_the_alphabet(source: Source, tokens: int, seed: int) -> None:
    text = source.text(tokens, seed)
    assert len(text) == tokens
    assert set(text) <= alphabet(source)


@unhurried
@given(sources, lengths, lengths, seeds)
def test_a_shorter_text_is_the_beginning_of_a_longer_one(source: Source, a: int, b: int, seed: int) -> None:
    assert source.text(max(a, b), seed).startswith(source.text(min(a, b), seed))


@unhurried
@given(sources)
def test_the_entropy_rate_lies_between_nothing_and_an_even_choice_of_the_alphabet(source: Source) -> None:
    assert 0 < source.entropy_rate < math.log(len(alphabet(source)))
    assert math.log(source.perplexity) == pytest.approx(source.entropy_rate)


@unhurried
@given(markovs)
def test_a_markov_chain_can_go_anywhere_and_its_stationary_distribution_stays_under_a_step(
    source: Markov,
) -> None:
    contexts = source.symbols**source.order
    assert source.transitions.shape == (contexts, source.symbols)
    assert source.stationary.shape == (contexts,)
    assert (source.transitions >= 0.01 / source.symbols).all()
    assert (source.stationary > 0).all()
    np.testing.assert_allclose(source.transitions.sum(axis=1), 1, rtol=1e-12)
    # "xy" followed by "z" arrives at "yz": summed over the oldest letter, that is how often "yz" stands.
    after = (source.stationary[:, None] * source.transitions).reshape(source.symbols, -1).sum(axis=0)
    np.testing.assert_allclose(after, source.stationary, rtol=1e-9)
    assert source.stationary.sum() == pytest.approx(1)


@pytest.mark.parametrize("order", [1, 2])
def test_markov_transitions_and_contexts_are_as_frequent_as_they_say(order: int) -> None:
    source = Markov(symbols=4, order=order)
    letters = np.frombuffer(source.text(TOKENS).encode(), np.uint8).astype(int) - ord("a")
    contexts = np.zeros(TOKENS - order, int)
    for back in range(order, 0, -1):
        contexts = contexts * 4 + letters[order - back : TOKENS - back]
    counts = np.bincount(contexts * 4 + letters[order:], minlength=4 ** (order + 1)).reshape(-1, 4)
    seen = counts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(seen[:, 0] / len(contexts), source.stationary, atol=0.005)
    # Five standard errors of each frequency.
    error = np.sqrt(source.transitions * (1 - source.transitions) / seen)
    assert (np.abs(counts / seen - source.transitions) < 5 * error).all()


def test_the_first_letter_of_a_markov_text_is_already_stationary() -> None:
    source = Markov(symbols=4)
    counts = Counter(source.text(1, seed) for seed in range(4000))
    frequencies = [counts[letter] / 4000 for letter in "abcd"]
    np.testing.assert_allclose(frequencies, source.stationary, atol=5 * math.sqrt(0.25 / 4000))


def test_another_chain_has_other_transitions_and_a_high_concentration_evens_them() -> None:
    assert not np.array_equal(Markov(chain=0).transitions, Markov(chain=1).transitions)
    rates = [Markov(concentration=concentration).entropy_rate for concentration in (0.1, 0.5, 1, 10)]
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(math.log(8), rel=0.01)


@unhurried
@given(brackets, lengths, seeds)
def test_brackets_are_well_nested_and_never_deeper_than_depth(source: Brackets, tokens: int, seed: int) -> None:
    assert max(len(stack) for stack in stacks(source.text(tokens, seed))) <= source.depth


def test_brackets_of_depth_one_cost_a_choice_of_kind_every_other_token() -> None:
    assert Brackets(kinds=4, depth=1).entropy_rate == pytest.approx(math.log(4) / 2)


def test_a_bracket_text_stands_at_each_depth_as_often_as_stationary_says() -> None:
    source = Brackets(depth=5, open_probability=0.4)
    counts = Counter(len(stack) for stack in stacks(source.text(TOKENS))[:-1])
    np.testing.assert_allclose([counts[d] / TOKENS for d in range(6)], source.stationary, atol=0.005)


@unhurried
@given(copies, lengths, seeds)
def test_a_copy_text_is_whole_records_and_the_beginning_of_one(source: Copy, tokens: int, seed: int) -> None:
    text = source.text(tokens, seed)
    *whole, last = text.split("!")[1:] or [""]
    shortest, longest = source.gaps
    record = re.compile(rf"([A-Z])[a-z]{{{shortest},{longest}}}\?\1")
    assert text[:1] in ("", "!")
    assert all(record.fullmatch(each) for each in whole)
    assert re.fullmatch(rf"([A-Z]([a-z]{{0,{longest}}}|[a-z]{{{shortest},{longest}}}\?[A-Z]?))?", last)


@unhurried
@given(copies, lengths, seeds, st.integers(0, 60))
def test_answers_finds_every_answer_whose_record_is_whole_and_no_other(
    source: Copy, tokens: int, seed: int, cut: int
) -> None:
    text = source.text(tokens, seed)[cut:]
    positions, gaps = source.answers(text)
    expected = [
        (at + 1, at - text.rindex("!", 0, at) - 2)
        for at, token in enumerate(text)
        if token == "?" and "!" in text[:at] and at + 1 < len(text)
    ]
    assert list(zip(positions.tolist(), gaps.tolist(), strict=True)) == expected
    assert all(
        text[at] == text[at - gap - 2] and text[at - gap - 3] == "!" for at, gap in zip(positions, gaps, strict=True)
    )


def test_a_wrong_answer_is_an_answer() -> None:
    positions, gaps = Copy().answers("x?B!Aab?B!A")
    assert (positions.tolist(), gaps.tolist()) == ([8], [2])


def test_every_gap_is_as_frequent_as_every_other() -> None:
    source = Copy(gaps=(2, 6))
    _, gaps = source.answers(source.text(TOKENS))
    assert set(gaps) == {2, 3, 4, 5, 6}
    np.testing.assert_allclose(np.bincount(gaps)[2:] / len(gaps), 1 / 5, atol=5 * math.sqrt(0.16 / len(gaps)))


def test_every_source_opens_its_documentation_with_a_line_that_describes_it() -> None:
    for source in SOURCES.values():
        assert re.fullmatch(r"[A-Z].{20,100}\.", (type(source).__doc__ or "").splitlines()[0])


@pytest.mark.parametrize(
    ("build", "problems"),
    [
        (lambda: Markov(symbols=1), ("symbols must be between 2 and 26. Got 1.",)),
        (
            lambda: Markov(symbols=27, order=3, concentration=math.nan),
            (
                "symbols must be between 2 and 26. Got 27.",
                "order must be 1 or 2. Got 3.",
                "concentration must be between 0.1 and 10. Got nan.",
            ),
        ),
        (
            lambda: Brackets(kinds=5, depth=0, open_probability=1.0),
            (
                "kinds must be between 2 and 4. Got 5.",
                "depth must be between 1 and 100. Got 0.",
                "open_probability must be between 0.01 and 0.99. Got 1.0.",
            ),
        ),
        (
            lambda: Copy(symbols=1, noise=0, gaps=(3, 2)),
            (
                "symbols must be between 2 and 26. Got 1.",
                "noise must be between 1 and 26. Got 0.",
                "gaps must be 0 or more, the shorter first. Got (3, 2).",
            ),
        ),
        (lambda: Copy(gaps=(-1, 2)), ("gaps must be 0 or more, the shorter first. Got (-1, 2).",)),
        *(
            (lambda source=source: source.text(-1), ("tokens must be at least 0. Got -1.",))
            for source in SOURCES.values()
        ),
    ],
)
def test_parameters_that_cannot_be_used_are_refused_all_at_once(
    build: Callable[[], object], problems: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        build()
    assert refusal.value.problems == problems
