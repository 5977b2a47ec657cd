"""Rules of decoding controls.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from unroll.sampling.decoding import load
from unroll.studies.contracts import cases, require

VALUES = {int: (1, 2, 3, 5, 10**9), float: (0.01, 0.1, 0.3, 0.5, 0.9, 1.0, 2.0, 30.0)}


def it_says_what_it_is(name: str) -> None:
    """PLACE is a number, TYPE int or float, HELP and ALLOWED are words."""
    control = load(name)
    require(isinstance(control.PLACE, int | float) and math.isfinite(control.PLACE), f"PLACE is {control.PLACE!r}.")
    require(control.TYPE in (int, float), f"TYPE is {control.TYPE!r}.")
    for words in ("HELP", "ALLOWED"):
        said = getattr(control, words)
        require(isinstance(said, str) and bool(said.strip()), f"{words} is {said!r}.")


def it_knows_which_values_can_be_meant(name: str) -> None:
    """`allowed` takes at least one usual value, and refuses what is no number."""
    require(bool(_values(name)), f"It allows none of {', '.join(map(str, VALUES[load(name).TYPE]))}.")
    require(not (load(name).TYPE is float and load(name).allowed(math.nan)), "It allows nan.")


def by_default_it_changes_nothing(name: str) -> None:
    """DEFAULT is None, or a value that leaves every distribution as it is."""
    default = load(name).DEFAULT
    if default is None:
        return
    require(load(name).allowed(default), f"DEFAULT is {default!r}, which it does not allow.")
    for logits_BV in _cases():
        after = load(name).apply(logits_BV.clone(), default).softmax(-1)
        cases.require_close(after, logits_BV.softmax(-1), f"What {default!r} leaves", 1e-12)


def it_changes_nothing_in_place_and_keeps_the_shape(name: str) -> None:
    """`apply` gives float64 logits of the same shape, and leaves those that it was given."""
    for value in _values(name):
        for logits_BV in _cases():
            before = logits_BV.clone()
            after = load(name).apply(logits_BV, value)
            require(torch.equal(before, logits_BV), f"With {value} it changed what it was given.")
            require(after.shape == before.shape and after.dtype == before.dtype, f"With {value} it gave {after.dtype}.")


def the_likeliest_is_never_ruled_out(name: str) -> None:
    """The likeliest token of every row stays, and no NaN comes out."""
    for value, before, after in _applied(name):
        best = before.argmax(-1, keepdim=True)
        require(not after.isnan().any() and not (after == math.inf).any(), f"With {value} it gave nan or inf.")
        require(bool((after.gather(-1, best) > -math.inf).all()), f"With {value} it ruled out the likeliest.")


def what_is_ruled_out_stays_ruled_out(name: str) -> None:
    """Tokens that came ruled out are ruled out after it, as the padding of a vocabulary must be."""
    for value, before, after in _applied(name):
        require(bool((after[before == -math.inf] == -math.inf).all()), f"With {value} a token came back.")


def what_is_left_keeps_its_order(name: str) -> None:
    """The likelier of two tokens that are left stays the likelier one."""
    for value, before, after in _applied(name):
        for was, row in zip(before, after, strict=True):
            ranked = row[was.argsort(descending=True, stable=True)]
            left = ranked[ranked > -math.inf]
            require(bool((left.diff() <= 0).all()), f"With {value} the order changed.")


def a_row_depends_on_itself_alone(name: str) -> None:
    """A row among others gives what it gives alone, to the last bit."""
    for value, before, after in _applied(name):
        for b in range(len(before)):
            alone = load(name).apply(before[b : b + 1], value)
            require(torch.equal(alone[0], after[b]), f"With {value} row {b} gave other numbers alone.")


def _values(name: str) -> list[Any]:
    return [value for value in VALUES.get(load(name).TYPE, ()) if load(name).allowed(value)]


def _cases() -> list[Tensor]:
    """Different, equal, few and padded logits."""
    padded = cases.tensor(3, 9, seed=2)
    padded[:, 6:] = -math.inf
    sure = torch.tensor([[0.0, 40.0, -3.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    return [cases.tensor(4, 9, seed=0), cases.tensor(2, 50, seed=1, scale=6.0), padded, sure, sure[:, :1]]


def _applied(name: str) -> list[tuple[Any, Tensor, Tensor]]:
    return [(value, case, load(name).apply(case.clone(), value)) for value in _values(name) for case in _cases()]
