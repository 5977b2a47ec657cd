"""What a token is. One file a kind; a file supplies

    counts(pieces)            -> how often each symbol occurs in a stream of pieces of text
    encode(pieces, symbols)   -> ids, an array a piece; a SymbolError names unknown symbols and their positions
    decode(ids, symbols)      -> the text that a person reads

and may supply `order(symbol)`, what the vocabulary is sorted by; `render(ids, symbols)`, the bytes of a file, where
that is more than the text in UTF-8; `READS_BYTES = True`, where pieces are bytes; `WRITES_FIELDS = True`, where
symbols stand with spaces between them; and `separated(separator)`, the same kind for fields with another separator. A
kind that does not read any text supplies an `EXAMPLE` of what it reads.

What every kind keeps to:
- what `encode` makes of a text, `decode` makes a text that encodes to the same ids;
- pieces are cuts of one text, anywhere: counts and ids do not depend on where it is cut;
- a text decoded token by token, each with the one before it, is the text decoded at once;
- symbols are different, not empty, and each, read as text, is one token: itself;
- what is not in the vocabulary is the unknown symbol where the vocabulary has it, else a SymbolError.

A `Vocabulary` is the sorted symbols of a corpus. It is stored with the run, so that an id never changes its meaning.
"""

from __future__ import annotations

import binascii
import codecs
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from unroll.base import plugins, untrusted
from unroll.base.errors import ConfigurationError, RunError, SymbolError, UnrollError
from unroll.experiment.experiment import is_separator

Ids = NDArray[np.integer[Any]]
UNKNOWN = "\ufffd"  # stands for every symbol rarer than min_count
NAMED = 5  # unknown symbols that a message names
MOST = 1 << 20  # symbols of a vocabulary: a model of more would have weights of many gigabytes


class Kind(Protocol):
    """What every token kind's file is."""

    def counts(self, pieces: Iterable[Any]) -> Mapping[str, int]: ...

    def encode(self, pieces: Iterable[Any], symbols: Sequence[str]) -> Iterator[Ids]: ...

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
    separator: str | None = None  # between fields, where that is not white space

    @classmethod
    def of(cls, text: str, kind: str, min_count: int = 1, separator: str | None = None) -> Vocabulary:
        """The vocabulary of a text in memory."""
        counts = load(kind, separator).counts([_piece(text, kind)])
        return cls.counted(counts, kind, min_count, separator)

    @classmethod
    def counted(
        cls, counts: Mapping[str, int], kind: str, min_count: int = 1, separator: str | None = None
    ) -> Vocabulary:
        """The sorted symbols; those rarer than min_count share one unknown symbol."""
        kept = {symbol for symbol, count in counts.items() if count >= min_count}
        if len(kept) < len(counts):
            kept.add(UNKNOWN)
        return cls(kind, tuple(sorted(kept, key=getattr(load(kind), "order", None))), separator)

    @property
    def _kind(self) -> Kind:
        return load(self.kind, self.separator)

    def __len__(self) -> int:
        return len(self.symbols)

    def encode(self, text: str) -> Ids:
        """The ids of a text in memory."""
        parts = list(self.encode_pieces([_piece(text, self.kind)]))
        return np.concatenate(parts) if parts else np.empty(0, smallest_type(len(self)))

    def encode_pieces(self, pieces: Iterable[Any]) -> Iterator[Ids]:
        """Ids of a stream, in the smallest type that holds them and that torch can index with."""
        for ids in self._kind.encode(pieces, self.symbols):
            yield ids.astype(smallest_type(len(self)), copy=False)

    def translate(self, ids: Ids, other: Vocabulary) -> Ids:
        """Ids of another vocabulary as ids of this one."""
        if other == self:
            return ids
        if other.kind != self.kind:
            raise SymbolError(f"The text is read as {other.kind}, the run as {self.kind}. Use --kind {self.kind}.")
        ids_here = {symbol: i for i, symbol in enumerate(self.symbols)}
        table = np.array([ids_here.get(symbol, ids_here.get(UNKNOWN, -1)) for symbol in other.symbols])
        translated = table[ids]
        if len(translated) and translated.min() < 0:
            unknown = np.flatnonzero(translated < 0)[::-1]
            raise SymbolError(unknown_symbols({other.symbols[ids[i]]: int(i) for i in unknown}))
        return np.asarray(translated.astype(smallest_type(len(self))))

    def decode(self, ids: Ids) -> str:
        """The text that these ids stand for."""
        return self._kind.decode(np.asarray(ids), self.symbols)

    def written(self, ids: Iterable[int], before: Sequence[int] = ()) -> Iterator[str]:
        """The text as it grows after the token `before` (if any), a piece a token."""
        if reads_bytes(self.kind):
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            for i in ids:
                yield decoder.decode(self.render(np.array([i])))
            return
        for i in ids:
            # What a token adds may depend on the one before it: a space between fields, none after a line's end.
            yield self.decode(np.array([*before, i]))[len(self.decode(np.array(before, np.int64))) :]
            before = [i]

    def render(self, ids: Ids) -> bytes:
        """The content of a file that these ids stand for."""
        kind: Any = self._kind
        if hasattr(kind, "render"):
            content: bytes = kind.render(np.asarray(ids), self.symbols)
            return content
        return self.decode(ids).encode("utf-8", "surrogatepass")

    def to_json(self) -> str:
        """vocabulary.json."""
        cut = {"separator": self.separator} if self.separator else {}
        return json.dumps({"kind": self.kind, **cut, "symbols": list(self.symbols)}, indent=1) + "\n"

    @cached_property
    def digest(self) -> str:
        """A hash of kind and symbols: weights carry it, since symbols in another order would be other text."""
        cut = [self.separator] if self.separator else []
        return untrusted.digest([self.kind, list(self.symbols), *cut])

    @classmethod
    def from_json(cls, text: str, where: str) -> Vocabulary:
        """Read vocabulary.json, trusting nothing."""
        try:
            content = untrusted.parse_json(text, 4 * MOST)
            kind, symbols, separator = content["kind"], content["symbols"], content.get("separator")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RunError(f"{where} must be a JSON object with kind and symbols. Copy the whole run folder.") from None
        wrong = plugins.problem("tokens", str(kind), f"kind in {where}")
        if wrong:
            raise RunError(wrong)
        if not (isinstance(symbols, list) and symbols and all(isinstance(s, str) and s for s in symbols)):
            raise RunError(f"symbols in {where} must be a list of non-empty strings.")
        if len(symbols) > MOST:
            raise RunError(f"symbols in {where} are {len(symbols):,}; at most {MOST:,} can be.")
        if len(set(symbols)) != len(symbols):
            raise RunError(f"symbols in {where} must all be different.")
        if separator is not None and not (is_separator(separator) and separates(kind)):
            raise RunError(f"separator in {where} must be one character between fields of ids.")
        vocabulary = cls(kind, tuple(symbols), separator)
        if not vocabulary._reads_its_own_symbols():
            raise RunError(f"symbols in {where} are not symbols of the kind {kind}.")
        return vocabulary

    def _reads_its_own_symbols(self) -> bool:
        """Whether every symbol, read as its kind reads text, is one token: itself."""
        try:
            return all(
                list(self._kind.counts([_piece(s, self.kind, symbol=True)])) == [s]
                for s in self.symbols
                if s != UNKNOWN
            )
        except (UnrollError, ValueError):
            return False


def smallest_type(size: int) -> type[np.integer[Any]]:
    """The smallest integer type for ids below `size` that torch can index with."""
    if size <= 2**8:
        return np.uint8
    return np.int16 if size <= 2**15 else np.int32


def load(name: str, separator: str | None = None) -> Kind:
    """The kind behind an option's name, for fields between separators where one is given."""
    kind: Any = plugins.load("tokens", name)
    if separator is not None and not is_separator(separator):
        raise ConfigurationError(f"separator must be one character that is no line end, or tab. Got {separator!r}.")
    if separator and not separates(name):
        raise ConfigurationError(f"--separator stands between fields, and the kind {name} has none. Use --kind ids.")
    return cast(Kind, kind.separated(separator) if separator else kind)


def separates(name: str) -> bool:
    """Whether a kind's fields can stand between separators."""
    return hasattr(plugins.load("tokens", name), "separated")


def reads_bytes(name: str) -> bool:
    """Whether a kind reads bytes rather than text."""
    return bool(getattr(load(name), "READS_BYTES", False))


def writes_fields(name: str) -> bool:
    """Whether a kind's symbols are fields, written with spaces between them."""
    return bool(getattr(load(name), "WRITES_FIELDS", False))


def _piece(text: str, kind: str, symbol: bool = False) -> str | bytes:
    """A text as one piece of what the kind reads; a byte's symbol is its hexadecimal name."""
    if not reads_bytes(kind):
        return text
    # The kind of that name hides the builtin `bytes` in this package.
    return binascii.unhexlify(text) if symbol else text.encode("utf-8", "surrogateescape")


def unknown_symbols(positions: dict[str, int]) -> str:
    """Names the first few symbols that are not in a vocabulary, each with its first position."""
    first = sorted(positions.items(), key=lambda item: item[1])[:NAMED]
    named = ", ".join(f"{symbol_name(symbol)} at position {position}" for symbol, position in first)
    more = f" and {len(positions) - NAMED} more" if len(positions) > NAMED else ""
    return f"Not in the vocabulary of this run: {named}{more}. Leave them out, or train on a corpus that has them."


def symbol_name(symbol: str) -> str:
    """A symbol in a message: quoted, and a single character with its code point."""
    return f"{symbol!r} (U+{ord(symbol):04X})" if len(symbol) == 1 else repr(symbol[:40])


def guess_kind(sample: bytes) -> str:
    """What a text looks like: notes (numbers up to 127), ids (numbers), or characters."""
    whole_lines = sample.rsplit(b"\n", 1)[0]
    fields = whole_lines.split()
    if len(fields) < 16 or not all(field.isdigit() and len(field) < 20 for field in fields):
        return "chars"
    return "notes" if all(len(field) <= 3 and int(field) <= 127 for field in fields) else "ids"
