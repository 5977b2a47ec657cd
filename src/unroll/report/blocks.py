"""What sections are made of: plain data, drawn by the functions of the same names in blocks.js.

A table's cells are text, numbers, None, or what `chip` and `interval` make. On a narrow screen each row becomes a card.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Block = dict[str, Any]
GOOD, FAIR, BAD, NONE = "good", "fair", "bad", "none"  # how a chip looks


def words(text: str) -> Block:
    """A paragraph."""
    return {"kind": "words", "text": text}


def heading(text: str) -> Block:
    """The title of what follows."""
    return {"kind": "heading", "text": text}


def lead(text: str) -> Block:
    """What a section says above all, in a sentence or two."""
    return {"kind": "lead", "text": text}


def notice(text: str) -> Block:
    """What a reader must know before the rest."""
    return {"kind": "notice", "text": text}


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Block:
    """Rows under headings; a column of numbers stands to the right."""
    return {"kind": "table", "title": title, "columns": list(columns), "rows": [list(row) for row in rows]}


def folded(summary: str, text: str) -> Block:
    """Words that open by a click or a key."""
    return {"kind": "folded", "summary": summary, "text": text}


def chip(text: str, look: str = NONE) -> Block:
    """A cell: a word or two that sum up a row."""
    return {"chip": text, "look": look}


def interval(middle: float, low: float | None, high: float | None, words: str, at: float | None = None) -> Block:
    """A cell: a mean and its interval as a picture, and in words; `at` is what it is compared with.

    All intervals of a column are drawn to one scale: logarithmic where nothing is compared and all are above 0.
    """
    ends = [None if end is None or not math.isfinite(end) else end for end in (low, high)]
    return {"interval": [middle, *ends], "words": words, "at": at}
