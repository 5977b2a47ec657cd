"""status.json: how far a run is, how it ended, and what it ran on, with a digest of itself.

Equal runs differ in their clocks alone. So these stay out of the file's digest and out of the weights; `clocks` is a
digest of their own, over the file's two and the `seconds` of all lines of metrics.jsonl.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from unroll.base import untrusted
from unroll.runs.metric_lines import CLOCK, DIGITS, is_number

STATES = ("training", "interrupted", "finished", "stopped")
ENDED = ("finished", "stopped")
CLOCKS = ("seconds", "evaluating")
CLOCKS_DIGEST = "clocks"
_APART = (*CLOCKS, CLOCKS_DIGEST)
_WORDS = ("identity", "device", "kernel", "torch", "unroll", "reason", CLOCKS_DIGEST)
_NUMBERS = (*CLOCKS, "batches", "fleet", "threads")


def write(status: Mapping[str, Any]) -> str:
    """Write the file's text."""
    return json.dumps(untrusted.sealed(status, apart=_APART), indent=1) + "\n"


def read(text: str) -> dict[str, Any]:
    """Read the status in a file's text; a ValueError says what is wrong with it."""
    status = untrusted.unsealed(untrusted.parse_json(text), apart=_APART)
    if status.get("state") not in STATES:
        raise ValueError(f"its state must be one of {', '.join(STATES)}")
    if type(status.get("batch")) is not int or not 0 <= status["batch"] < 2**31:
        raise ValueError("its batch must be a whole number")
    wrong = [name for name in _WORDS if not isinstance(status.get(name, ""), str)]
    wrong += [name for name in _NUMBERS if not is_number(status.get(name) or 0)]
    plain = status.get("plain", [])  # plug-ins that had no fast code
    wrong += ["plain"] if not (isinstance(plain, list) and all(isinstance(words, str) for words in plain)) else []
    if wrong:
        raise ValueError(f"{', '.join(wrong)} must be of another type")
    return status


def with_clocks(status: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The status of a run that has ended with these lines of metrics, with a digest of all its clocks."""
    clocks = [*(status.get(clock) for clock in CLOCKS), *(line[CLOCK] for line in lines)]
    return {**status, CLOCKS_DIGEST: untrusted.digest(clocks)[:DIGITS]}


def clocks_are_whole(status: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> bool:
    """Whether no clock was changed since the run ended; a run of an older version has no digest of them."""
    return CLOCKS_DIGEST not in status or with_clocks(status, lines)[CLOCKS_DIGEST] == status[CLOCKS_DIGEST]


def clocks_agree(status: Mapping[str, Any], facts: Mapping[str, str]) -> bool:
    """Whether the status has the clocks that the weights carry, as those of older versions do."""
    try:
        return all(abs(float(facts[clock]) - status[clock]) < 0.01 for clock in CLOCKS)
    except (KeyError, ValueError):
        return False
