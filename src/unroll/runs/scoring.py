"""What a model thinks of a text: how surprising each token is, and which tokens it expected.

Both procedures are scored by the code that computes perplexity. No token predicts the first one, so N tokens have N − 1
surprisals. Long texts pass through in chunks, and one chunk is held at a time.

Shapes: n tokens of a chunk, N of a text, A alternatives, V vocabulary.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unroll.base.errors import ConfigurationError, RunError, SymbolError
from unroll.corpus import tokens
from unroll.corpus.tokens import Ids, Vocabulary
from unroll.model import conditioning, head
from unroll.runs import perplexities
from unroll.runs.known_text import encoded
from unroll.runs.loaded import Run, procedure_of, require_run
from unroll.runs.perplexities import DIVERGED, Perplexity

RENDERED = 1 << 16  # tokens whose bytes are counted at a time
LEVELS = (1, 2, 4, 8)  # bits that divide five levels of surprise: probability 1/2, 1/4, 1/16, 1/256


@dataclass(frozen=True, eq=False)
class ScoredChunk:
    """Consecutive tokens: how unlikely each was, and the likeliest tokens in its place, best first."""

    start: int  # the first token's index in the text
    nats_n: NDArray[np.float64]
    rank_n: NDArray[np.int64]  # 1 where it was the likeliest
    likeliest_nA: NDArray[np.int64]
    probabilities_nA: NDArray[np.float64]


@dataclass(frozen=True)
class Alternative:
    """A token that could have stood there."""

    symbol: str
    probability: float


@dataclass(frozen=True)
class Surprisal:
    """A token, its log-probability given what came before it, and the likeliest tokens in its place.

    >>> Surprisal("e", logprob=math.log(1 / 8), rank=2, alternatives=()).bits
    3.0
    """

    symbol: str
    logprob: float  # nats
    rank: int  # 1 where it was the likeliest of all
    alternatives: tuple[Alternative, ...]  # likeliest first; the token itself may be one of them

    @property
    def bits(self) -> float:
        """How surprising it was: 1 bit is a coin's toss."""
        return -self.logprob / math.log(2)


@dataclass(frozen=True)
class Total:
    """The cost of a whole text.

    >>> Total(nats=8 * math.log(2), tokens=4, bytes=8).bits_per_byte
    1.0
    """

    nats: float  # of all predicted tokens together
    tokens: int  # predicted: all but the first
    bytes: int  # of those tokens, in UTF-8; the one measure that all kinds of token share

    @property
    def log_probability(self) -> float:
        """The text's log-probability given its first token, in nats."""
        return 0.0 - self.nats  # never −0

    @property
    def perplexity(self) -> float:
        """exp of the mean over the predicted tokens."""
        return Perplexity(self.nats / self.tokens, self.tokens).perplexity

    @property
    def bits_per_token(self) -> float:
        """The same in bits."""
        return self.nats / self.tokens / math.log(2)

    @property
    def bits_per_byte(self) -> float:
        """Comparable between characters, bytes and words."""
        return self.nats / self.bytes / math.log(2)


@dataclass(frozen=True)
class Scored:
    """A text, token by token and in all."""

    procedure: str
    first: str  # the token that nothing predicts
    tokens: tuple[Surprisal, ...]
    total: Total
    skipped: int = 0  # tokens that the run does not know, which were left out


def score(run: Run, text: str, sample: str | None = None, unknown: str = "refuse") -> list[float]:
    """The log-probability of each token of a text but the first: N − 1 of them for N tokens.

    `unknown="skip"` leaves out the tokens that the run does not know, as if the text did not have them.
    """
    _require(run, text)
    ids = encoded(run.vocabulary, text, unknown).ids
    return [-nats for chunk in scored_chunks(run, ids, sample) for nats in chunk.nats_n.tolist()]


def surprisals(
    run: Run, text: str, alternatives: int = 5, sample: str | None = None, unknown: str = "refuse"
) -> Scored:
    """How surprising each token of a text is, with the likeliest tokens in its place.

    `sample` is the procedure, the scheme's own by default; `unknown` as for `score`.
    """
    _require(run, text)
    known = encoded(run.vocabulary, text, unknown)
    ids = known.ids
    symbols = run.vocabulary.symbols
    every = tuple(each_surprisal(run, ids, (symbols[i] for i in ids), symbols, alternatives, sample))
    nats = 0.0 - math.fsum(token.logprob for token in every)  # never −0, which a text of one symbol would give
    total = Total(nats, len(every), predicted_bytes(run.vocabulary, ids))
    return Scored(procedure_of(run, sample), symbols[ids[0]], every, total, known.tokens_skipped)


def _require(run: Run, text: str) -> None:
    require_run(run)
    if not isinstance(text, str):
        raise ConfigurationError(f"What is scored is text. Got {str(text)[:60]!r}.")


def each_surprisal(
    run: Run, ids: Ids, texts: Iterator[str], names: Sequence[str], alternatives: int = 5, sample: str | None = None
) -> Iterator[Surprisal]:
    """Yield one token after the other. `texts` name all tokens, the first too; `names` name the alternatives."""
    next(texts, None)
    for chunk in scored_chunks(run, ids, sample, alternatives):
        others = zip(chunk.likeliest_nA.tolist(), chunk.probabilities_nA.tolist(), strict=True)
        of_tokens = zip(chunk.nats_n.tolist(), chunk.rank_n.tolist(), others, strict=True)
        for nats, rank, (indices, odds) in of_tokens:
            likeliest = (Alternative(names[i], p) for i, p in zip(indices, odds, strict=True))
            yield Surprisal(next(texts), -nats, rank, tuple(likeliest))


def scored_chunks(run: Run, ids: Ids, sample: str | None = None, alternatives: int = 0) -> Iterator[ScoredChunk]:
    """Score all tokens of a text but the first, in order, a chunk at a time."""
    procedure = procedure_of(run, sample)
    k2 = run.experiment.scheme.k2
    if alternatives < 0:
        raise ConfigurationError(f"alternatives must be at least 0. Got {alternatives}.")
    if len(ids) < 2:
        raise SymbolError(f"A text to score needs at least 2 tokens. Got {len(ids)}.")
    ids_N = torch.from_numpy(ids.astype(np.int64)).to(run.model.device)
    start = 1
    for logits_nV in _predictions(run, ids_N, procedure, k2):
        chunk = _scored(logits_nV, ids_N[start:], start, min(alternatives, len(run.vocabulary)))
        if not np.isfinite(chunk.nats_n).all():
            raise RunError(DIVERGED)
        yield chunk
        start += len(chunk.nats_n)


def _predictions(run: Run, ids_N: Tensor, procedure: str, k2: int) -> Iterator[Tensor]:
    """Logits for every token but the first."""
    # A window has read the first k2 tokens from the text's beginning too, so both procedures agree on them.
    ways = [("progressive", ids_N[:k2], 1)] if k2 > 1 else []
    ways += [(procedure, ids_N, k2)] if len(ids_N) > k2 else []
    for name, text_N, known in ways:
        chunks = conditioning.load(name).hidden(run.model, text_N.unsqueeze(0), known)
        every_logits = (logits for h_MnRH in chunks for logits in perplexities.logits(run.model, h_MnRH))
        while True:
            # These hold while this computes, and not while the caller looks at the result.
            with torch.no_grad(), run.model.engine.reading(run.model.precision):
                logits_MnRV = next(every_logits, None)
            if logits_MnRV is None:
                break
            yield logits_MnRV[0, :, 0]


def _scored(logits_nV: Tensor, following_N: Tensor, start: int, alternatives: int) -> ScoredChunk:
    targets_n = following_N[: len(logits_nV)]
    likelier_nV = logits_nV > logits_nV.gather(-1, targets_n.unsqueeze(-1))
    best = torch.topk(logits_nV, alternatives, dim=-1)
    probabilities_nA = torch.exp(best.values - torch.logsumexp(logits_nV, -1, keepdim=True))
    columns = (head.nll(logits_nV, targets_n), likelier_nV.sum(-1) + 1, best.indices, probabilities_nA)
    return ScoredChunk(start, *(tensor.cpu().numpy() for tensor in columns))


def predicted_bytes(vocabulary: Vocabulary, ids: Ids) -> int:
    """The UTF-8 bytes of a text without its first token, counted a part at a time."""
    total = 0
    for begin in range(1, len(ids), RENDERED):
        # The bytes of a token may depend on the one before it: a space between fields, none after a line's end.
        part = ids[begin - 1 : begin + RENDERED]
        total += len(vocabulary.render(part)) - len(vocabulary.render(part[:1]))
    return total


def level(bits: float) -> int:
    """The level of surprise, from 0, as good as expected, to 4.

    >>> level(0.3), level(1.0), level(12.0)
    (0, 1, 4)
    """
    return bisect_right(LEVELS, bits)


def legible(vocabulary: Vocabulary, ids: Ids) -> Iterator[str]:
    """The text that each token adds, for a reader."""
    if tokens.reads_bytes(vocabulary.kind):
        names = legible_names(vocabulary)
        return (names[i] for i in ids)
    return vocabulary.written(int(i) for i in ids)


def legible_names(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Every symbol for a reader: a byte by its ASCII character, or by its number where it has none."""
    if not tokens.reads_bytes(vocabulary.kind):
        return vocabulary.symbols
    return tuple(
        s if s == tokens.UNKNOWN else chr(int(s, 16)) if int(s, 16) < 0x80 else f"\\x{s}" for s in vocabulary.symbols
    )
