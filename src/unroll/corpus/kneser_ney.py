"""Interpolated Kneser-Ney: what a model that only counts short stretches of text reaches.

It is the modified form of Chen and Goodman: each order takes a discount off its counts, one discount for a count of 1,
one for 2 and one for more, and gives what it took off to the order below. The top order counts how often a stretch
occurs; the orders below count how many different tokens stand before it. Below order 1 all symbols are equally likely.

A stretch of n tokens is one integer of 64 bits, oldest token first. So all stretches with one context stand side by
side in a sorted table, and everything about them is the difference of two running sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ORDER = 5
DISCOUNT = 0.5  # where the counts are too few to estimate one
LARGEST_CODE = 2**63 - 1

Integers = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]


class Table(NamedTuple):
    """The stretches of one order: their codes in rising order, and what is counted of each."""

    codes: Integers
    counts: Integers


class Answer(NamedTuple):
    """What one order says of the tokens that are asked for."""

    kept: Floats  # what is left of a token's count after the discount
    given_below: Floats  # what was taken off all counts of its context
    occurs: Integers  # the sum of those counts


def order_for(symbols: int, most: int = ORDER) -> int:
    """The longest stretch, up to `most` tokens, whose codes fit into 64 bits."""
    return next((n for n in range(most, 1, -1) if symbols**n <= LARGEST_CODE), 1)


def probabilities(train: Integers, test: Integers, symbols: int, order: int) -> Floats:
    """The probability of each token of `test`, which follows `train`, given the order − 1 tokens before it.

    `train` must have at least `order` tokens, and symbols ** order must be below 2^63.
    """
    text = np.concatenate((train[len(train) - order + 1 :], test)).astype(np.int64)
    # What the test set asks of a table is small, and a table is large: only one of them is held at a time.
    answers = []
    for n, table in zip(range(order, 0, -1), _tables(train, symbols, order), strict=True):
        answers.append(_answer(table, _codes(text[order - n :], symbols, n), symbols))
    likely = np.full(len(test), 1 / symbols)
    for answer in reversed(answers):
        interpolated = (answer.kept + answer.given_below * likely) / np.maximum(answer.occurs, 1)
        likely = np.where(answer.occurs > 0, interpolated, likely)  # a context that never occurs says nothing
    return likely


def discounts(counts: Integers) -> Floats:
    """What is taken off a count of 0, 1, 2, and 3 or more."""
    having = [int((counts == size).sum()) for size in range(1, 5)]
    off = [0.0, DISCOUNT, DISCOUNT, DISCOUNT]
    if having[0] and having[1]:
        ratio = having[0] / (having[0] + 2 * having[1])
        for size in (1, 2, 3):
            if having[size - 1]:
                estimate = size - (size + 1) * ratio * having[size] / having[size - 1]
                off[size] = estimate if 0 < estimate < size else DISCOUNT
    return np.array(off)


def _tables(train: Integers, symbols: int, order: int) -> Iterator[Table]:
    """The tables of each order, from the top down: all but the first count different tokens before a stretch."""
    codes = _codes(train, symbols, order)
    last = int(codes[-1])
    codes.sort()
    table = _counted(codes)
    del codes
    different = table.codes
    yield table
    for n in range(order - 1, 0, -1):
        without_oldest = different % symbols**n
        without_oldest.sort()
        yield _counted(without_oldest)
        del without_oldest
        # Every stretch is the start of a longer one, but for the last of the text.
        last %= symbols**n
        starts = _counted(different // symbols).codes
        at = int(np.searchsorted(starts, last))
        missing = at == len(starts) or starts[at] != last
        different = np.insert(starts, at, last) if missing else starts


def _codes(text: Integers, symbols: int, length: int) -> Integers:
    """The code of every stretch of that length."""
    count = len(text) - length + 1
    codes = np.array(text[:count], np.int64)
    for offset in range(1, length):
        codes *= symbols
        codes += text[offset : offset + count]
    return codes


def _counted(ordered: Integers) -> Table:
    begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return Table(ordered[begins], np.diff(begins, append=len(ordered)))


def _answer(table: Table, asked: Integers, symbols: int) -> Answer:
    taken = discounts(table.counts)[np.minimum(table.counts, 3)]
    context = asked // symbols * symbols
    begin, end = np.searchsorted(table.codes, context), np.searchsorted(table.codes, context + symbols)
    at = np.minimum(np.searchsorted(table.codes, asked), len(table.codes) - 1)
    kept = np.where(table.codes[at] == asked, table.counts[at] - taken[at], 0.0)
    return Answer(kept, _sums(taken, begin, end), _sums(table.counts, begin, end))


def _sums(values: NDArray[Any], begin: Integers, end: Integers) -> NDArray[Any]:
    running = np.concatenate(([0], np.cumsum(values)))
    return np.asarray(running[end] - running[begin])
