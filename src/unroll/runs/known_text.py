"""A text as ids of a run. Symbols that the run does not know are refused, or left out and counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from unroll.base.errors import ConfigurationError, SymbolError, counted
from unroll.corpus.tokens import NAMED, Ids, Vocabulary, symbol_name

CHOICES = ("refuse", "skip")
ADVICE = "Or have them skipped and counted: --unknown skip."


@dataclass(frozen=True, eq=False)
class KnownText:
    """The tokens of a text that a run can read."""

    ids: Ids  # of the run's vocabulary
    own_ids: Ids  # the same tokens in the text's own vocabulary
    skipped: Mapping[str, int]  # how often each symbol was left out

    @property
    def tokens_skipped(self) -> int:
        """How many tokens were left out."""
        return sum(self.skipped.values())

    @property
    def note(self) -> str | None:
        """What was left out, in words; None where that is nothing."""
        if not self.skipped:
            return None
        often = sorted(self.skipped.items(), key=lambda item: -item[1])
        named = ", ".join(f"{symbol_name(symbol)} {counted(times, 'time')}" for symbol, times in often[:NAMED])
        more = f", and {counted(len(often) - NAMED, 'other symbol')}" if len(often) > NAMED else ""
        tokens = f"{self.tokens_skipped:,} of {self.tokens_skipped + len(self.ids):,} tokens"
        return f"{tokens} are not in this run's vocabulary and were left out: {named}{more}."


def require_choice(unknown: str) -> None:
    """Refuse what is neither."""
    if unknown not in CHOICES:
        raise ConfigurationError(f"unknown must be refuse or skip. Got {unknown!r}.")


def known_text(vocabulary: Vocabulary, ids: Ids, other: Vocabulary, unknown: str = "refuse") -> KnownText:
    """Ids of another vocabulary as ids of a run's; `skip` leaves out even what the run has one unknown symbol for."""
    require_choice(unknown)
    if other.kind != vocabulary.kind:
        vocabulary.translate(ids, other)  # which says so
    if unknown == "refuse":
        try:
            return KnownText(vocabulary.translate(ids, other), ids, {})
        except SymbolError as error:
            raise _with_advice(error) from None
    symbols = set(vocabulary.symbols)
    foreign_V = np.array([symbol not in symbols for symbol in other.symbols], bool)
    if not foreign_V.any():
        return KnownText(vocabulary.translate(ids, other), ids, {})
    times_V = np.bincount(ids, minlength=len(other))
    skipped = {other.symbols[i]: int(times_V[i]) for i in np.flatnonzero(foreign_V & (times_V > 0))}
    kept = ids[~foreign_V[ids]]
    return KnownText(vocabulary.translate(kept, other), kept, skipped)


def encoded(vocabulary: Vocabulary, text: str, unknown: str = "refuse") -> KnownText:
    """A text in memory, read as the run's own was."""
    require_choice(unknown)
    if unknown == "refuse":
        try:
            ids = vocabulary.encode(text)
        except SymbolError as error:
            raise _with_advice(error) from None
        return KnownText(ids, ids, {})
    own = Vocabulary.of(text, vocabulary.kind, separator=vocabulary.separator)
    return known_text(vocabulary, own.encode(text), own, unknown)


def _with_advice(error: SymbolError) -> SymbolError:
    return SymbolError(f"{' '.join(error.problems)} {ADVICE}")
