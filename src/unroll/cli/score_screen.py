"""A scored text on a screen: coloured by surprise in a terminal, a line per token anywhere else."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from unroll.base.printable import pictured, quoted
from unroll.cli.screen import DIM, Piece, Style, on_a_terminal, show, write

if TYPE_CHECKING:
    from unroll.runs.scoring import Surprisal, Total

# Black on ever stronger grounds. Underlining and weight say the same without colours.
STYLES: tuple[Style, ...] = (
    {},
    {"fg": 16, "bg": 229},
    {"fg": 16, "bg": 221},
    {"fg": 16, "bg": 215, "underline": True},
    {"fg": 16, "bg": 203, "underline": True, "bold": True},
)
MOST = 10  # surprising tokens, listed with what was expected instead
BEFORE = 24  # characters shown before each of them
LONGEST = 24  # characters of a token in a list


def summarise(heading: Mapping[str, str], total: Total) -> None:
    """Print the numbers."""
    for name, value in heading.items():
        show(f"{name:<18}{value}")
    show(f"{'log-probability':<18}{total.log_probability:,.4f} nats of {total.tokens:,} tokens after the first")
    show(f"{'perplexity':<18}{total.perplexity:,.4f}")
    show(f"{'bits per token':<18}{total.bits_per_token:.4f}")
    show(f"{'bits per byte':<18}{total.bits_per_byte:.4f}   ({total.bytes:,} bytes)")


def show_tokens(first: str, tokens: Iterable[Surprisal]) -> None:
    """Print the text itself and what surprised most, or a line per token where nobody watches."""
    passing = iter(tokens)
    tokens = chain([next(passing)], passing)  # an error in the first token comes before any output
    if on_a_terminal():
        _colour(first, tokens)
        return
    show("bits\ttoken\tlikeliest")
    for token in tokens:
        show(f"{token.bits:.4f}\t{_quoted(token.symbol)}\t{likeliest(token)}")
    show()


def _colour(first: str, tokens: Iterable[Surprisal]) -> None:
    from unroll.runs.scoring import LEVELS, level

    write((pictured(first), DIM))
    surprising = heapq.nlargest(MOST, _echoed(first, tokens), key=lambda pair: pair[0].bits)
    edges = [f"{low:g} – {high:g}" for low, high in zip((0, *LEVELS), LEVELS, strict=False)] + [f"{LEVELS[-1]:g} +"]
    legend: list[Piece] = []
    for index, edge in enumerate(edges):
        legend += ["  " if index else "", (f" {edge} ", STYLES[index])]
    write("\n\n")
    show(f"{'bits of surprise':<18}", *legend)
    show()
    show(f"{'bits':>6}  the most surprising, and what was expected in its place")
    for token, before in surprising:
        shown = pictured(token.symbol).rstrip("\n\t")
        room = " " * max(0, BEFORE + 4 - len(before) - len(shown))
        styled = (shown, STYLES[level(token.bits)])
        show(f"{token.bits:>6.2f}  ", (before, DIM), styled, f"{room}  {likeliest(token)}")
    show()


def _echoed(first: str, tokens: Iterable[Surprisal]) -> Iterator[tuple[Surprisal, str]]:
    """Show every token as it passes; yield it with the text before it on one line."""
    from unroll.runs.scoring import level

    before = _one_line(first)
    for token in tokens:
        write((pictured(token.symbol), STYLES[level(token.bits)]))
        yield token, before
        before = (before + _one_line(token.symbol))[-BEFORE:]


def _one_line(text: str) -> str:
    return pictured(text).replace("\n", "").replace("\t", "")


def likeliest(token: Surprisal) -> str:
    """Say the likeliest tokens: 'e' 41.2 %, 't' 20.1 %, …"""
    return ", ".join(f"{_quoted(a.symbol)} {a.probability:.1%}".replace("%", " %") for a in token.alternatives)


def _quoted(symbol: str) -> str:
    """Quote a symbol, with every invisible character spelt out."""
    return quoted(symbol if len(symbol) <= LONGEST else symbol[: LONGEST - 1] + "…")
