"""Synthetic sources: texts of known entropy rate, to hold a model's perplexity against the truth.

No model can do better, in the long run, than a source's `perplexity`; one that does is being scored wrongly.
A text depends on nothing but its source and its seed; a shorter one is the beginning of every longer one.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from string import ascii_lowercase, ascii_uppercase
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from unroll.base.errors import ConfigurationError
from unroll.base.randomness import uniform


class Source(Protocol):
    """A source of text with a known entropy rate."""

    def text(self, tokens: int, seed: int = 0) -> str:
        """Exactly `tokens` characters, the same for the same seed."""

    @property
    def entropy_rate(self) -> float:
        """Nats per token, for a reader who knows the source and all of the text so far."""

    @property
    def perplexity(self) -> float:
        """The least perplexity that any model can have on a long text."""
        return math.exp(self.entropy_rate)


def _whole(draws: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    """Uniform draws in [0, 1) as integers in [0, limit)."""
    return (draws * limit).astype(np.int64)


def _require_length(tokens: int) -> None:
    _require((tokens >= 0, "tokens must be at least 0", tokens))


def _require(*rules: tuple[bool, str, object]) -> None:
    """Refuse with every rule that does not hold, and what was got instead."""
    problems = [f"{rule}. Got {got}." for holds, rule, got in rules if not holds]
    if problems:
        raise ConfigurationError(*problems)


@final
@dataclass(frozen=True)
class Markov(Source):
    """A Markov chain over a few letters: the last one or two decide the odds of the next.

    A context is the last `order` letters read as a number in base `symbols`. `chain` seeds the transitions;
    they are the more even the higher the concentration. The context before the text is drawn from the
    stationary distribution, so the text is stationary from its first letter.
    """

    symbols: int = 8
    order: int = 1
    concentration: float = 0.5
    chain: int = 0

    def __post_init__(self) -> None:
        _require(
            (2 <= self.symbols <= 26, "symbols must be between 2 and 26", self.symbols),
            (self.order in (1, 2), "order must be 1 or 2", self.order),
            (0.1 <= self.concentration <= 10, "concentration must be between 0.1 and 10", self.concentration),
        )

    @cached_property
    def transitions(self) -> NDArray[np.float64]:
        """The probability of each next letter (columns) after each context (rows)."""
        draws = uniform(self.chain, "markov transitions", 0, self.symbols ** (self.order + 1))
        weights = (-np.log1p(-draws)).reshape(-1, self.symbols) ** (1 / self.concentration)
        rows: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
        # A share of the uniform distribution makes the chain ergodic, and quick to forget where it started.
        return 0.99 * rows + 0.01 / self.symbols

    @cached_property
    def stationary(self) -> NDArray[np.float64]:
        """How often each context stands in a long text."""
        contexts = np.arange(self.symbols**self.order)
        steps = np.zeros((len(contexts), len(contexts)))
        steps[contexts[:, None], self._successors] = self.transitions
        # One of the equations π = π · steps follows from the others: Σπ = 1 takes its place.
        equations = steps.T - np.eye(len(contexts))
        equations[-1] = 1.0
        return np.linalg.solve(equations, np.eye(len(contexts))[-1])

    @cached_property
    def entropy_rate(self) -> float:
        return float(-(self.stationary @ (self.transitions * np.log(self.transitions))).sum())

    def text(self, tokens: int, seed: int = 0) -> str:
        _require_length(tokens)
        # Without the last sum, which may round to just below 1, every draw falls on a letter.
        sums = np.cumsum(self.transitions, axis=1)[:, :-1].tolist()
        successors = self._successors.tolist()
        first, *draws = uniform(seed, "markov text", 0, tokens + 1).tolist()
        context = bisect_right(np.cumsum(self.stationary)[:-1].tolist(), first)
        letters = []
        for draw in draws:
            letter = bisect_right(sums[context], draw)
            letters.append(ascii_lowercase[letter])
            context = successors[context][letter]
        return "".join(letters)

    @property
    def _successors(self) -> NDArray[np.int64]:
        """The context after each context (rows) and letter (columns)."""
        contexts = np.arange(self.symbols**self.order)
        return (contexts[:, None] * self.symbols + np.arange(self.symbols)) % len(contexts)


@final
@dataclass(frozen=True)
class Brackets(Source):
    """Nested brackets of several kinds: what closes must match what opened.

    At depth 0 a bracket opens, at the greatest depth the innermost closes; between them one opens, of a kind
    drawn uniformly, with `open_probability`. The text starts at depth 0 and may end with brackets still open.

    From depth 2 on, a model with bounded context comes close to the entropy rate but cannot reach it: a pair
    may hold any number of other pairs, so what is to be closed, and how deep it lies, may be out of sight.
    """

    kinds: int = 3
    depth: int = 6
    open_probability: float = 0.5

    def __post_init__(self) -> None:
        p = self.open_probability
        _require(
            (2 <= self.kinds <= 4, "kinds must be between 2 and 4", self.kinds),
            (1 <= self.depth <= 100, "depth must be between 1 and 100", self.depth),
            (0.01 <= p <= 0.99, "open_probability must be between 0.01 and 0.99", p),
        )

    @cached_property
    def opening(self) -> NDArray[np.float64]:
        """The probability that the next bracket opens, at each depth."""
        return np.array([1.0] + [self.open_probability] * (self.depth - 1) + [0.0])

    @cached_property
    def stationary(self) -> NDArray[np.float64]:
        """How often a long text stands at each depth."""
        # A long text goes down from d to d + 1 as often as it comes back.
        ratios = self.opening[:-1] / (1.0 - self.opening[1:])
        visits = np.cumprod(np.concatenate([[1.0], ratios]))
        shares: NDArray[np.float64] = visits / visits.sum()
        return shares

    @cached_property
    def entropy_rate(self) -> float:
        p = self.open_probability
        choice = -p * math.log(p) - (1 - p) * math.log(1 - p)
        # What opens must close, so half of all brackets open; which kind closes is known from the stack.
        return math.log(self.kinds) / 2 + choice * float(self.stationary[1:-1].sum())

    def text(self, tokens: int, seed: int = 0) -> str:
        _require_length(tokens)
        draws = uniform(seed, "brackets open", 0, tokens).tolist()
        kinds = _whole(uniform(seed, "brackets kind", 0, tokens), self.kinds).tolist()
        opening = self.opening.tolist()
        brackets: list[str] = []
        stack: list[str] = []
        for draw, kind in zip(draws, kinds, strict=True):
            if draw < opening[len(stack)]:
                brackets.append("([{<"[kind])
                stack.append(")]}>"[kind])
            else:
                brackets.append(stack.pop())
        return "".join(brackets)


@final
@dataclass(frozen=True)
class Copy(Source):
    """Records such as !Fbad?F: a symbol, a gap of noise, and at the query the same symbol again.

    A record is the marker "!", one of `symbols` capitals, a gap in which each token is one of `noise` small
    letters, the query "?", and the answer. The gap's length is uniform between the two `gaps`, both included.
    The next record follows at once.

    The symbol lies gap + 2 positions before its answer (the symbol, the gap, the query, the answer), so a
    window of the k2 tokens before an answer holds the symbol if and only if gap + 2 <= k2.
    """

    symbols: int = 8
    noise: int = 8
    gaps: tuple[int, int] = (1, 30)

    def __post_init__(self) -> None:
        shortest, longest = self.gaps
        _require(
            (2 <= self.symbols <= 26, "symbols must be between 2 and 26", self.symbols),
            (1 <= self.noise <= 26, "noise must be between 1 and 26", self.noise),
            (0 <= shortest <= longest, "gaps must be 0 or more, the shorter first", self.gaps),
        )

    @property
    def entropy_rate(self) -> float:
        shortest, longest = self.gaps
        mean_gap = (shortest + longest) / 2
        # The query tells the gap's length. The marker and the answer tell nothing: they are known beforehand.
        record = math.log(self.symbols) + math.log(longest - shortest + 1) + mean_gap * math.log(self.noise)
        return record / (4 + mean_gap)

    def text(self, tokens: int, seed: int = 0) -> str:
        _require_length(tokens)
        shortest, longest = self.gaps
        most = tokens // (4 + shortest) + 1
        gaps = shortest + _whole(uniform(seed, "copy gap", 0, most), longest - shortest + 1)
        symbols = ord("A") + _whole(uniform(seed, "copy symbol", 0, most), self.symbols)
        starts = np.cumsum(gaps + 4) - (gaps + 4)
        begun = starts < tokens
        starts, gaps, symbols = starts[begun], gaps[begun], symbols[begun]
        # Room for the last record whole, then cut; where no record writes, noise stays.
        text = ord("a") + _whole(uniform(seed, "copy noise", 0, tokens + 4 + longest), self.noise)
        text[starts] = ord("!")
        text[starts + 1] = symbols
        text[starts + 2 + gaps] = ord("?")
        text[starts + 3 + gaps] = symbols
        return text[:tokens].astype(np.uint8).tobytes().decode("ascii")

    def answers(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The position of each answer whose whole record stands in the text, and its gap.

        The symbol is at position − gap − 2. An answer need not be right: the text may be a model's own.
        """
        capitals, small = ascii_uppercase[: self.symbols], ascii_lowercase[: self.noise]
        shortest, longest = self.gaps
        record = re.compile(rf"![{capitals}]([{small}]{{{shortest},{longest}}})\?[{capitals}]")
        found = [(match.end() - 1, len(match[1])) for match in record.finditer(text)]
        positions, gaps = np.array(found, np.int64).reshape(-1, 2).T
        return positions, gaps


SOURCES: dict[str, Source] = {"markov": Markov(), "brackets": Brackets(), "copy": Copy()}
