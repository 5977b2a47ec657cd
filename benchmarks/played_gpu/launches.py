"""What is asked of a GPU that is played, written down in order: launches, products, graphs, and who waits for whom."""

from __future__ import annotations

import ctypes
import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

RENAMED = {"cuda_dropout.cu": "dropout_masks.cu", "cuda_": ""}  # parts of the sources' names
REGISTERS = 168  # what the persistent kernel insists on
WHOLE = 1 << 16  # bytes of a memory whose content is looked at in every launch; of a larger one, in its first


class Record:
    """What was asked of the GPU, in order; memories are kept, so that no address comes twice."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.memories: dict[int, tuple[int, Any]] = {}  # by address: a number, and the memory, which is kept
        self.pointers: dict[int, Tensor] = {}
        self.streams: dict[Any, int] = {}
        self.mixed: Counter[str] = Counter()

    def add(self, *entry: Any) -> None:
        self.entries.append([*entry, self.stream(now.streams[-1])])

    def stream(self, stream: Any) -> int:
        return self.streams.setdefault(stream, len(self.streams))

    def tensor(self, x: Tensor) -> list[Any]:
        storage = x.untyped_storage()
        new = storage.data_ptr() not in self.memories
        number, _ = self.memories.setdefault(storage.data_ptr(), (len(self.memories), storage))
        content = None
        if new or storage.nbytes() <= WHOLE:
            content = zlib.crc32(ctypes.string_at(storage.data_ptr(), storage.nbytes())) if storage.nbytes() else 0
        return [number, x.storage_offset(), str(x.dtype)[6:], list(x.shape), list(x.stride()), content]

    def argument(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            assert not hasattr(x, "_host"), "a tensor of the host is handed to a launch"
            return self.tensor(x)
        if isinstance(x, ctypes.Structure):
            return {name: self.field(getattr(x, name), kind) for name, kind in x._fields_}  # type: ignore[misc]
        return x if x is None else [type(x).__name__, repr(x)]

    def field(self, value: Any, kind: Any) -> Any:
        if isinstance(value, ctypes.Array):
            fields = [self.field(v, kind._type_) for v in value]
            return fields[: max((n + 1 for n, v in enumerate(fields) if v), default=0)]
        return self.tensor(self.pointers[value]) if kind is ctypes.c_void_p and value else value


class Function:
    """Of a module; as the real one to its callers."""

    def __init__(self, code: list[Any], name: str) -> None:
        self.code, self.name, self.shared, self.cluster, self.registers = code, name, 0, 1, REGISTERS

    def allow(self, shared: int, cluster: int = 1) -> Function:
        self.shared, self.cluster = shared, cluster
        return self

    def launch(self, grid: Any, block: int, *arguments: Any, together: bool = False) -> None:
        given = [now.record.argument(a) for a in arguments]
        how = [list(grid), block, self.shared, self.cluster, together]
        now.record.add("launch", *self.code, self.name, how, given)


class Modules(dict[Any, Any]):
    """What the compiler gives: functions by name, kept as the real ones are."""

    @staticmethod
    def load(sources: Any, defines: Any) -> Modules:
        key = (tuple(sources), tuple(defines.items()))
        if key not in now.modules:
            names = [source.name for source in sources]
            for old, new in RENAMED.items():
                names = [name.replace(old, new) for name in names]
            text = "\n".join(source.read_text("utf-8") for source in sources)
            text = " ".join(re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S).split())
            code = [names, hashlib.sha256(text.encode()).hexdigest()[:16], [[k, str(v)] for k, v in defines.items()]]
            now.modules[key] = Modules()
            now.modules[key].code = code
        return now.modules[key]

    def __missing__(self, name: str) -> Function:
        self[name] = Function(self.code, name)
        return self[name]


class Stream:
    """A stream, or an event: what waits for what is written down."""

    def __init__(self, *_: Any, **settings: Any) -> None:
        self.priority, self.cuda_stream, self.of = settings.get("priority", 0), 0, None

    def record(self, stream: Any = None) -> None:
        self.of = stream or now.streams[-1]
        now.record.add("event", now.record.stream(self), now.record.stream(self.of))

    def record_event(self, event: Any = None) -> Any:
        event = event or Stream()
        event.record(self)
        return event

    def wait_stream(self, other: Any) -> None:
        now.record.add("wait", now.record.stream(self), now.record.stream(other))

    wait_event = wait_stream

    def synchronize(self) -> None:
        now.record.add("synchronise", now.record.stream(self))

    def query(self) -> bool:
        return True


class Graph:
    """A recorded graph; its replay computes nothing."""

    def replay(self) -> None:
        now.record.add("replay", now.record.stream(self))


@contextmanager
def on(stream: Any) -> Iterator[None]:
    now.streams.append(stream or now.streams[-1])
    try:
        yield
    finally:
        now.streams.pop()


@contextmanager
def capturing(graph: Any, stream: Any = None, **_: Any) -> Iterator[None]:
    with on(stream):
        now.record.add("capture begins", now.record.stream(graph), stream.priority if stream else None)
        yield
        now.record.add("capture ends", now.record.stream(graph))


@contextmanager
def here(*_: Any) -> Iterator[None]:
    yield


class Now:
    """What is going on."""

    def __init__(self) -> None:
        self.record = Record()
        self.modules: dict[Any, Modules] = {}
        self.kept: list[Tensor] = []
        self.streams: list[Any] = [Stream()]


now = Now()
