"""status.json: how far a run is, how it ended, and what it ran on, with a digest of itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from unroll.base import untrusted
from unroll.runs.metric_lines import is_number

STATES = ("training", "interrupted", "finished", "stopped")
ENDED = ("finished", "stopped")
CLOCKS = ("seconds", "evaluating")  # equal runs differ in them, so the digest leaves them out
_WORDS = ("identity", "device", "kernel", "torch", "unroll", "reason")
_NUMBERS = (*CLOCKS, "batches", "fleet", "threads")


def write(status: Mapping[str, Any]) -> str:
    """Write the file's text."""
    return json.dumps(untrusted.sealed(status, apart=CLOCKS), indent=1) + "\n"


def read(text: str) -> dict[str, Any]:
    """Read the status in a file's text; a ValueError says what is wrong with it."""
    status = untrusted.unsealed(untrusted.parse_json(text), apart=CLOCKS)
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


def clocks_agree(status: Mapping[str, Any], facts: Mapping[str, str]) -> bool:
    """Whether the status has the clocks that the weights carry."""
    try:
        return all(abs(float(facts[clock]) - status[clock]) < 0.01 for clock in CLOCKS)
    except (KeyError, ValueError):
        return False
