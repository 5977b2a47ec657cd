"""Conditioning: which state the next token's distribution is computed from. One file a procedure; a file supplies

    begin(model, k2, rows, first)     -> memory          nothing read yet
    read(model, memory, ids_B)        -> h_BH, memory    one token a row read; h_BH predicts the next
    hidden(model, ids_MN, k2, first)  -> chunks of [M, n, R, H] that predict every token after the first k2, in order

and, where only the last k2 tokens can matter, `FORGETS = True`.

Sampling draws from the head of `read`'s h; perplexity scores the true token with the head of `hidden`'s. What every
procedure keeps to:
- `hidden` gives the h that `read` gives token by token, in chunks of any length; those of a fleet's run as of it alone;
- memories are values: `read` leaves the one that it was given as it was, so that a row is copied by sharing it;
- a row depends on its own text and first state alone, and the same seed draws the same tokens;
- with FORGETS, no token before the last k2 matters. A procedure may look at fewer: what it predicts while a text is
  short is its own affair.
A procedure that a fast engine has no loop for is computed by `read`, a row at a time, and a run says so.

 `first` is the state a text starts from, R rows of it a run. `begin` and `read`
take a fleet of one; `hidden` takes any, with a text a run, and makes of each stretch of time one call of the kernel.

Shapes: M runs, N tokens of a text, B or R rows, H hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, cast

from unroll.base import plugins

if TYPE_CHECKING:  # naming the procedures must not cost an import of torch
    from torch import Tensor

    from unroll.model.model import Model
    from unroll.model.network import States

PROCEDURES = ("windowed", "progressive")  # the paper's two, under which every run is scored at its end
TILE = 64  # rows that a GPU's kernels work on at a time; no chunk has fewer, whatever the room


class Sampler(Protocol):
    """What every procedure's file is."""

    def begin(self, model: Model, k2: int, rows: int, first: States | None = None) -> Any: ...

    def read(self, model: Model, memory: Any, ids_B: Tensor) -> tuple[Tensor, Any]: ...

    def hidden(self, model: Model, ids_MN: Tensor, k2: int, first: States | None = None) -> Iterator[Tensor]: ...


def load(name: str) -> Sampler:
    """The procedure behind an option's name."""
    return cast(Sampler, plugins.load("conditioning", name))


def forgets(name: str) -> bool:
    """Whether a procedure looks at no more than the last k2 tokens."""
    return bool(getattr(load(name), "FORGETS", False))
