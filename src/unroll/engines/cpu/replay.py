"""A step on a CPU is recorded once and replayed, as a CUDA graph is on a GPU.

A training step calls torch about two hundred times, and most of those calls compute nothing: they allocate memory, make
views of tensors, keep account for the gradients. In a small step, these calls and the Python around them took longer
than everything but the large products. A recording keeps the calls that compute: operations of torch and compiled code,
with their tensors and addresses. Replayed, each call reads and writes the same memory again.

So a recorded step may depend only on tensors that outlive it, never on a value that Python looked at. (`item` is
refused. A list of values, or a count of those that are not 0, goes unnoticed: it must be the same in every step.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from unroll.engines.cpu.this_thread import this_thread

Call = Callable[[], object]


class RecordedCalls(TorchDispatchMode):
    """Records what this thread computes inside its block, and replays it."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[Call] = []
        self._held: list[Any] = []  # every result: compiled code knows only addresses

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's compiler, which nothing here uses, takes seconds to be imported

    def __enter__(self) -> RecordedCalls:
        super().__enter__()
        this_thread.recording = self
        return self

    def __exit__(self, *error: Any) -> None:
        this_thread.recording = None
        super().__exit__(*error)

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        out = _detached(result)
        self._held.append(out)
        if call := _repeated(operation, _detached(args), {k: _detached(v) for k, v in (kwargs or {}).items()}, out):
            self._calls.append(call)
        return result

    def add(self, call: Call) -> None:
        """Record a call that torch does not know of."""
        self._calls.append(call)

    def replay(self) -> None:
        """Make all recorded calls again."""
        with torch.no_grad():
            for call in self._calls:
                call()


def done(call: Call) -> None:
    """Note a call that torch does not know of: if this thread is recording, the call will be replayed."""
    if this_thread.recording:
        this_thread.recording.add(call)


def _detached(x: Any) -> Any:
    """The same tensors without autograd's record of them."""
    if isinstance(x, Tensor):
        return x.detach()
    return type(x)(map(_detached, x)) if isinstance(x, list | tuple) else x


def _repeated(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Call | None:
    """A call that repeats an operation and writes its result to `out`; None if the result never changes."""
    if operation.is_view or "empty" in operation._schema.name:
        return None
    if operation._schema.is_mutable:
        return partial(operation, *args, **kwargs)
    writing, names = _writing(operation)
    return partial(writing, *args, **{name: value for name, value in kwargs.items() if name in names}, out=out)


@cache
def _writing(operation: Any) -> tuple[Any, frozenset[str]]:
    """The variant of an operation that writes to an existing tensor, and the names of that variant's arguments."""
    positional = [(x.name, str(x.type)) for x in operation._schema.arguments if not x.kwarg_only]
    packet = operation.overloadpacket
    for variant in (getattr(packet, name) for name in packet.overloads()):
        *arguments, last = variant._schema.arguments
        required = [x for x in arguments[len(positional) :] if not x.has_default_value()]
        if (
            [(x.name, str(x.type)) for x in arguments[: len(positional)]] == positional
            and last.name == "out"
            and not required
        ):
            return variant, frozenset(x.name for x in arguments)
    raise NotImplementedError(f"{operation} cannot be recorded: its result is no tensor that could be written again.")
