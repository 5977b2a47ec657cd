"""A step on a CPU recorded once and replayed: what a CUDA graph is on a GPU.

A training step calls torch some two hundred times, and most of those calls compute nothing: they make room, look at a
tensor in another way, keep account for the gradients. Together with the Python around them they took longer than what
is computed in a small step besides the large products. A tape keeps what computes: operations of torch and compiled
code, with the tensors and addresses that they had. Replayed, each reads and writes the same memory again.

So what is recorded may depend only on what stands in tensors that outlive it, never on a value that Python looked at.
(`item` is refused. A list of values, or how many are not 0, is not seen: such must be the same in every step.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from unroll.engines.cpu.this_thread import this_thread

Again = Callable[[], object]


class Tape(TorchDispatchMode):
    """What this thread computes inside it is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: list[Again] = []
        self._held: list[Any] = []  # every tensor that was made: compiled code knows only addresses

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's compiler, which nothing here uses, takes seconds to be imported

    def __enter__(self) -> Tape:
        super().__enter__()
        this_thread.tape = self
        return self

    def __exit__(self, *error: Any) -> None:
        this_thread.tape = None
        super().__exit__(*error)

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = operation(*args, **(kwargs or {}))
        made = _apart(found)
        self._held.append(made)
        if again := _again(operation, _apart(args), {k: _apart(v) for k, v in (kwargs or {}).items()}, made):
            self._steps.append(again)
        return found

    def add(self, again: Again) -> None:
        """Something was done that torch does not know of; this does it again."""
        self._steps.append(again)

    def replay(self) -> None:
        """Do all of it again."""
        with torch.no_grad():
            for again in self._steps:
                again()


def done(again: Again) -> None:
    """Something was done that torch does not know of: a tape that records here will do it again."""
    if this_thread.tape:
        this_thread.tape.add(again)


def _apart(x: Any) -> Any:
    """The same tensors, of which autograd knows nothing."""
    if isinstance(x, Tensor):
        return x.detach()
    return type(x)(map(_apart, x)) if isinstance(x, list | tuple) else x


def _again(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], made: Any) -> Again | None:
    """What does an operation again, into what it made; None where that is still there."""
    if operation.is_view or "empty" in operation._schema.name:
        return None
    if operation._schema.is_mutable:
        return partial(operation, *args, **kwargs)
    into, known = _into(operation)
    return partial(into, *args, **{name: value for name, value in kwargs.items() if name in known}, out=made)


@cache
def _into(operation: Any) -> tuple[Any, frozenset[str]]:
    """The operation that does the same into a tensor that is there, and the names of what else it is told."""
    given = [(x.name, str(x.type)) for x in operation._schema.arguments if not x.kwarg_only]
    packet = operation.overloadpacket
    for other in (getattr(packet, name) for name in packet.overloads()):
        *arguments, last = other._schema.arguments
        more = [x for x in arguments[len(given) :] if not x.has_default_value()]
        if [(x.name, str(x.type)) for x in arguments[: len(given)]] == given and last.name == "out" and not more:
            return other, frozenset(x.name for x in arguments)
    raise NotImplementedError(
        f"{operation} cannot be recorded: what it gives is no tensor that could be written again."
    )
