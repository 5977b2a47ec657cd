"""From a distribution to a token. One file a control; a file supplies

    PLACE                     a number: controls apply in the order of their places, each to what the one before left
    TYPE                      int or float, what a value is
    DEFAULT                   the value of a draw that does not say it; None: the control does nothing then
    HELP                      the line of `unroll sample --help`
    ALLOWED, allowed(value)   which values can be meant: in words that go on "it must be …", and as a test
    apply(logits_BV, value)   -> logits_BV in float64, −inf where a token is ruled out

and nothing else has to be edited: the file's name is the option of `unroll sample`, the argument of `unroll.sample`,
and the field of `Decoding`. Then one token a row is drawn.

What every control keeps to:
- a row's result depends on that row alone, and `apply` changes nothing in place;
- the likeliest token of a row is never ruled out, and what is ruled out already stays so;
- what is left keeps its order: a control rules out, sharpens or flattens, and never makes the less likely likelier;
- no number that is not a number comes out.

The controls of `model.steppers.DEVICE_CONTROLS` are also known to the loops of devices that draw by themselves. Texts
that use another one are drawn by the host, a token at a time. `unroll sample --help` reads these files: one that
imports torch only inside `apply` keeps that quick.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from unroll.base import plugins

if TYPE_CHECKING:  # `Decoding` reads these files
    from torch import Tensor

    from unroll.experiment.decoding import Decoding


class Control(Protocol):
    """What every control's file is."""

    PLACE: float
    TYPE: type
    DEFAULT: Any
    HELP: str
    ALLOWED: str

    def allowed(self, value: Any) -> bool: ...

    def apply(self, logits_BV: Tensor, value: Any) -> Tensor: ...


def load(name: str) -> Control:
    """The control behind an option's name."""
    return cast(Control, plugins.load("decoding", name))


def distribution(decoding: Decoding, logits_BV: Tensor) -> Tensor:
    """The probabilities that a token is drawn from, in float64."""
    logits = logits_BV.double()
    if decoding.temperature == 0:
        best = logits.argmax(-1, keepdim=True)
        return logits.new_zeros(logits.shape).scatter_(-1, best, 1.0)
    for control, value in decoding.applied:
        logits = load(control).apply(logits, value)
    return logits.softmax(-1)
