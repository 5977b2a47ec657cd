"""Durations in words, and words as durations."""

from __future__ import annotations

import re

from unroll.base.errors import ConfigurationError

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


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


def seconds_in(text: str, option: str = "--budget") -> float:
    """The seconds in a duration as an option has it: 90s, 10m, 1h, 1h30m.

    >>> seconds_in("90s"), seconds_in("10m"), seconds_in("1.5h"), seconds_in("1h30m")
    (90.0, 600.0, 5400.0, 5400.0)
    """
    parts = re.findall(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smh])", text)
    seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or not seconds > 0:
        raise ConfigurationError(f"{option} is a duration above 0, as in 90s, 10m or 1h. Got {text!r}.")
    return seconds
