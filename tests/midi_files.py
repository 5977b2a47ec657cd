"""MIDI files made by hand, an event at a time."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import settings

from unroll.corpus.music.reading import read_notes

Event = tuple[int, bytes]  # delta time, message
END: Event = (0, b"\xff\x2f\0")
unhurried = settings(deadline=None, max_examples=60)


def number(value: int) -> bytes:
    """A variable-length number."""
    octets = [value & 0x7F]
    while value := value >> 7:
        octets.append(value & 0x7F | 0x80)
    return bytes(reversed(octets))


def track_of(events: Sequence[Event]) -> bytes:
    content = b"".join(number(delta) + message for delta, message in events)
    return b"MTrk" + struct.pack(">L", len(content)) + content


def midi(*tracks: Sequence[Event], division: int = 480, form: int = 1) -> bytes:
    """A file made by hand."""
    header = b"MThd" + struct.pack(">LHHH", 6, form, len(tracks), division)
    return header + b"".join(track_of([*events, END]) for events in tracks)


def on(delta: int, pitch: int, channel: int = 0, velocity: int = 64) -> Event:
    return delta, bytes((0x90 | channel, pitch, velocity))


def off(delta: int, pitch: int) -> Event:
    return delta, bytes((0x80, pitch, 0))


def tempo(delta: int, microseconds: int) -> Event:
    return delta, b"\xff\x51\x03" + microseconds.to_bytes(3)


# In these files a tick is a millisecond.
MILLISECONDS = 500


def notes_of(folder: Path, content: bytes, **options: Any) -> list[int]:
    path = folder / "file.mid"
    path.write_bytes(content)
    return read_notes(path, **options)


WHOLE = midi([on(0, 60), on(480, 62)])
