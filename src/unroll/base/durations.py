"""Durations in words."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """12 s, 3 min 20 s, 2 h 5 min.

    >>> duration(12.4), duration(200), duration(7500)
    ('12 s', '3 min 20 s', '2 h 5 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
