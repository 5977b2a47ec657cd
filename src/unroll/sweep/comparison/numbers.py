"""How numbers of an answer read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unroll.base.durations import duration


def number(value: float | None) -> str:
    """A perplexity."""
    return "∞" if value is None else f"{value:,.3f}" if value < 100 else f"{value:,.0f}"


def between(interval: Mapping[str, Any]) -> str:
    """The ends of an interval, in brackets; nothing where one seed has none."""
    if interval["low"] is None:
        return ""
    return f" ({number(interval['low'])} to {number(interval['high'])})"


def percent(share: float) -> str:
    """A share, exact enough to be told from nothing."""
    return f"{share:.0%}" if abs(share) >= 0.1 else f"{share:.1%}"


def brief(seconds: float) -> str:
    """A duration, exact where it is short.

    >>> brief(0.8312), brief(75)
    ('0.831 s', '1 min 15 s')
    """
    return f"{seconds:.3g} s" if seconds < 10 else duration(seconds)
