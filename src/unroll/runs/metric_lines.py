"""The lines of metrics.jsonl: one JSON object an evaluation, each with a digest of itself and of all lines before it.

    {"batch": 3, "sequences": 192, "loss": 3.1, "perplexity": {…}, "seconds": 0.2, …, "chain": "9f86d081884c7d"}

A person can read them and cut lines off at the end. A changed digit in any line is noticed, and the line is named.
`seconds` stays out of the chain, since clocks differ between runs that are otherwise equal to the last bit; the weights
carry the clocks. Lines of older versions have no chain.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from unroll.base import untrusted

CHAIN = "chain"
CLOCK = "seconds"
DIGITS = 14
_NUMBERS = ("batch", "sequences", "seconds")


def link(before: str, metrics: Mapping[str, Any]) -> str:
    """The digest of a line whose predecessor's is `before`; for the first line `before` is empty."""
    chained = {name: value for name, value in metrics.items() if name not in (CHAIN, CLOCK)}
    return hashlib.sha256(f"{before}{untrusted.digest(chained)}".encode()).hexdigest()[:DIGITS]


def write(before: str, metrics: Mapping[str, Any]) -> str:
    """Write one line."""
    return json.dumps({**metrics, CHAIN: link(before, metrics)})


def read(content: bytes) -> tuple[list[dict[str, Any]], str]:
    """Read the evaluations and the last one's digest; a ValueError names the line where something is wrong.

    A last line without its end was cut off by a crash, and is left out.
    """
    evaluations: list[dict[str, Any]] = []
    last = ""
    chained = False
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        try:
            metrics = _checked(untrusted.parse_json(line), evaluations[-1]["batch"] if evaluations else 0)
        except ValueError as error:
            raise ValueError(f"line {number:,}: {error}") from None
        last = link(last, metrics)
        stated = metrics.pop(CHAIN, None)
        if stated != last and (chained or stated is not None):
            raise ValueError(f"line {number:,} is not what was written: its chain is {stated!r}, not {last!r}")
        chained = stated is not None
        evaluations.append(metrics)
    return evaluations, last


def _checked(metrics: Any, before: int) -> dict[str, Any]:
    """Check that an evaluation holds what every evaluation does."""
    if not isinstance(metrics, dict):
        raise ValueError("each line must be a JSON object with a batch")
    wrong = [name for name in _NUMBERS if not is_number(metrics.get(name))]
    if metrics.get("loss") is not None and not is_number(metrics["loss"]):
        wrong.append("loss")
    for name, scores in (("perplexity", metrics.get("perplexity")), ("validation", metrics.get("validation", {}))):
        if not isinstance(scores, dict) or not all(score is None or is_number(score) for score in scores.values()):
            wrong.append(name)
    if wrong or "loss" not in metrics:
        raise ValueError(f"{', '.join(wrong) or 'loss'} must be there, as an evaluation has it")
    if type(metrics["batch"]) is not int or metrics["batch"] <= before:
        raise ValueError(f"its batch must be a whole number above {before:,}")
    return metrics


def flat(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """An evaluation with a column for each perplexity beside the nested ones: a row of a table.

    >>> flat({"batch": 3, "perplexity": {"windowed": 7.5}})
    {'batch': 3, 'perplexity': {'windowed': 7.5}, 'perplexity_windowed': 7.5}
    """
    # A perplexity too large for a float stands as null in the file.
    columns = {
        f"{of}_{procedure}": math.inf if value is None else value
        for of in ("perplexity", "validation")
        for procedure, value in metrics.get(of, {}).items()
    }
    return {**metrics, **columns}


def is_number(value: Any) -> bool:
    """Whether a value is a finite number; True is none here, and no count is beyond 64 bits."""
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and -(2**63) <= value < 2**63)
