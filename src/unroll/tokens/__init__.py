"""What a token is. One file a kind; a file supplies

    counts(text)            -> how often each symbol occurs
    encode(text, symbols)   -> ids, or a SymbolError that names the first unknown symbol and its position
    decode(ids, symbols)    -> text

A `Vocabulary` is the sorted symbols of a corpus. It is stored with the run, so that an id never changes its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from unroll import plugins
from unroll.errors import RunError

Ids = NDArray[np.integer[Any]]
UNKNOWN = "\ufffd"  # stands for every symbol rarer than min_count


class Kind(Protocol):
    """What every token kind's file is."""

    def counts(self, text: str) -> Mapping[str, int]: ...

    def encode(self, text: str, symbols: Sequence[str]) -> Ids: ...

    def decode(self, ids: Ids, symbols: Sequence[str]) -> str: ...


@dataclass(frozen=True)
class Vocabulary:
    """The symbols of a corpus, in id order.

    >>> vocabulary = Vocabulary.of("abracadabra", "chars")
    >>> vocabulary.symbols
    ('a', 'b', 'c', 'd', 'r')
    >>> vocabulary.decode(vocabulary.encode("cab"))
    'cab'
    """

    kind: str
    symbols: tuple[str, ...]

    @classmethod
    def of(cls, text: str, kind: str, min_count: int = 1) -> Vocabulary:
        """The sorted symbols of a text; those rarer than min_count share one unknown symbol."""
        counts = _kind(kind).counts(text)
        kept = {symbol for symbol, count in counts.items() if count >= min_count}
        if len(kept) < len(counts):
            kept.add(UNKNOWN)
        return cls(kind, tuple(sorted(kept)))

    def __len__(self) -> int:
        return len(self.symbols)

    def encode(self, text: str) -> Ids:
        """Ids in the smallest signed or 8-bit type that holds them."""
        return _kind(self.kind).encode(text, self.symbols).astype(smallest_type(len(self)))

    def decode(self, ids: Ids) -> str:
        """The text that these ids stand for."""
        return _kind(self.kind).decode(np.asarray(ids), self.symbols)

    def to_json(self) -> str:
        """vocabulary.json."""
        return json.dumps({"kind": self.kind, "symbols": list(self.symbols)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> Vocabulary:
        """Read vocabulary.json, trusting nothing."""
        try:
            content = json.loads(text)
            kind, symbols = content["kind"], content["symbols"]
        except (ValueError, KeyError, TypeError):
            raise RunError(f"{where} must be a JSON object with kind and symbols. Copy the whole run folder.") from None
        wrong = plugins.problem("unroll.tokens", str(kind), f"kind in {where}")
        if wrong:
            raise RunError(wrong)
        if not (isinstance(symbols, list) and symbols and all(isinstance(s, str) and s for s in symbols)):
            raise RunError(f"symbols in {where} must be a list of non-empty strings.")
        if len(set(symbols)) != len(symbols):
            raise RunError(f"symbols in {where} must all be different.")
        vocabulary = cls(kind, tuple(symbols))
        try:
            vocabulary.encode("")
        except TypeError:
            raise RunError(f"symbols in {where} are not {kind}. Copy the whole run folder.") from None
        return vocabulary


def smallest_type(size: int) -> type[np.integer[Any]]:
    """The smallest integer type for ids below `size` that torch can index with."""
    if size <= 2**8:
        return np.uint8
    return np.int16 if size <= 2**15 else np.int32


def _kind(name: str) -> Kind:
    return cast(Kind, plugins.load("unroll.tokens", name))
