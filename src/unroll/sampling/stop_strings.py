"""Text as it is drawn, up to the first stop string.

A stop string may straddle tokens, and end or begin inside one: text that may turn out to be its beginning is held back
until that is known. Text is matched as text, bytes as bytes, and what is written as fields (notes, ids) field by field:
the stop 12 is the note 12, not the first digits of 120.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

import numpy as np

from unroll.corpus.music import reading
from unroll.corpus.tokens import Vocabulary, reads_bytes, writes_fields

Units = Any  # str, bytes, or a tuple of ids: all can be cut, joined and compared


class Stops:
    """The strings that end a text, in the units that a vocabulary's texts are matched in."""

    def __init__(self, vocabulary: Vocabulary, stops: Sequence[str]) -> None:
        self.vocabulary = vocabulary
        self.strings: list[Units] = [self._units_of(stop) for stop in stops]
        self.beginnings = {stop[:n] for stop in self.strings for n in range(1, len(stop))}
        self.longest = max(map(len, self.strings), default=0)

    def units(self, ids: Sequence[int]) -> Units:
        """What tokens add to a text."""
        if reads_bytes(self.vocabulary.kind):
            return self.vocabulary.render(np.array(ids, np.int64))
        if writes_fields(self.vocabulary.kind):
            return tuple(ids)
        return self.vocabulary.decode(np.array(ids, np.int64))

    def _units_of(self, stop: str) -> Units:
        if reads_bytes(self.vocabulary.kind):
            return stop.encode("utf-8", "surrogateescape")
        if not writes_fields(self.vocabulary.kind):
            return stop
        if self.vocabulary.kind == "notes":
            lines = (" ".join(map(str, reading.parse_notes(line))) for line in stop.split("\n"))
            stop = "\n".join(lines)
        return tuple(self.vocabulary.encode(stop).tolist())

    def found(self, text: Units) -> int | None:
        """Where the first stop string begins in a text, or None."""
        places = [
            place
            for stop in self.strings
            for place in range(len(text) - len(stop) + 1)
            if text[place : place + len(stop)] == stop
        ]
        return min(places, default=None)

    def end(self, ids: Sequence[int]) -> bool:
        """Whether a stop string stands in the text of these tokens; without their last, none did."""
        # Every token is at least one unit long: a string that the last one completes begins no earlier than this.
        return bool(self.strings) and self.found(self.units(ids[-self.longest :])) is not None


class Writer:
    """The text of one stream as it grows after the token `before`, if any."""

    def __init__(self, stops: Stops, before: Sequence[int] = ()) -> None:
        self._stops, self._before = stops, list(before)
        self._certain: Units = stops.units([])
        self._held: Units = stops.units([])
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.ended = False

    def add(self, token: int) -> str:
        """What is certain now, for the screen; after the stop string nothing more is."""
        self._held += self._stops.units([token])
        place = self._stops.found(self._held)
        if place is not None:
            self.ended = True
            return self._release(place)
        held = next((n for n in range(min(len(self._held), self._stops.longest), 0, -1) if self._may_go_on(n)), 0)
        return self._release(len(self._held) - held)

    def finish(self) -> str:
        """What was held back, now that nothing follows."""
        return "" if self.ended else self._release(len(self._held))

    @property
    def text(self) -> str:
        """All that is certain."""
        if isinstance(self._certain, bytes):
            return self._certain.decode("utf-8", "surrogateescape")
        if isinstance(self._certain, str):
            return self._certain
        return self._stops.vocabulary.decode(np.array(self._certain, np.int64))

    def _may_go_on(self, length: int) -> bool:
        """Whether the last units, this many, may be the beginning of a stop string."""
        return self._held[-length:] in self._stops.beginnings

    def _release(self, length: int) -> str:
        released, self._held = self._held[:length], self._held[length:]
        self._certain += released
        if isinstance(released, bytes):
            return self._decoder.decode(released)
        if isinstance(released, str):
            return released
        text = "".join(self._stops.vocabulary.written(released, self._before))
        self._before = list(released[-1:]) or self._before
        return text
