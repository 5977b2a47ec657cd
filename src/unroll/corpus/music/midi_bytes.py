"""The bytes of a MIDI file: from a header and tracks to the exact times of its notes.

Files come from anywhere, so nothing in them is trusted, and sizes are capped before anything is expanded. mido, pure
Python, says what a message means; where messages begin and end is worked out here, because mido alone takes time
quadratic in the length of a delta time that never ends, loses the delta time of meta events it does not know, and
drops a whole file for one odd key signature.

A wrong file raises a ValueError: the words before its colon name the sort of trouble, and `reading.py` adds the file.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from unroll.base.errors import ConfigurationError

MAX_BYTES = 16 * 2**20
MAX_TRACKS = 1_000
MAX_EVENTS = 500_000
MAX_SECONDS = 24 * 60 * 60
DRUMS = 9  # channel 10, counted from 0

_DEFAULT_TEMPO = 500_000  # microseconds a beat, until a file says otherwise
_FRAME_RATES = {24: (24, 1), 25: (25, 1), 29: (30_000, 1_001), 30: (30, 1)}  # SMPTE's 29 is 30000/1001 a second
_NUMBER_BYTES = 10  # of a variable-length number; four are allowed, and some writers pad
_META, _TEMPO, _END = 0xFF, 0x51, 0x2F
# Data bytes after a status byte, by its upper half and, for system messages, by itself.
_DATA = {0x80: 2, 0x90: 2, 0xA0: 2, 0xB0: 2, 0xC0: 1, 0xD0: 1, 0xE0: 2}
_SYSTEM_DATA = {0xF1: 1, 0xF2: 2, 0xF3: 1}
_FOREIGN = {
    b"ID3": "an MP3",
    b"\xff\xfb": "an MP3",
    b"RIFF": "a RIFF file (WAV, for one)",
    b"OggS": "an Ogg file",
    b"fLaC": "a FLAC file",
    b"PK\x03\x04": "a ZIP file",
    b"<": "a web page or XML",
    b"version https://git-lfs": "a Git-LFS pointer: run `git lfs pull` where it came from",
}


def extra(doing: str) -> Any:
    """mido, or how to get it. It carries no types, so this is where they end."""
    try:
        return importlib.import_module("mido")
    except ImportError:
        raise ConfigurationError(f"{doing} MIDI needs the midi extra: pip install 'unroll-rnn[midi]'.") from None


def onsets(content: bytes, mido: Any) -> tuple[list[tuple[int, int]], int]:
    """(time, pitch) of every note in order of time, and how many units of time a second has: exact, in integers."""
    division, tracks = _chunks(content)
    notes: list[tuple[int, int]] = []
    tempos: list[tuple[int, int]] = []
    events, drums, last = 0, False, 0
    for track in tracks:
        for tick, status, data in _events(track):
            events, last = events + 1, max(last, tick)
            if events > MAX_EVENTS:
                raise ValueError(f"is too large: over {MAX_EVENTS:,} events")
            if status == _META:
                tempos.append((tick, int.from_bytes(data)))
            elif status & 0xF0 == 0x90:
                # Some writers let a velocity run over; a pitch that does is no pitch.
                message = mido.Message.from_bytes((status, data[0], min(data[1], 127)))
                if message.velocity:
                    drums = drums or message.channel == DRUMS
                    if message.channel != DRUMS:
                        notes.append((tick, message.note))
    if not notes:
        raise ValueError("has only drums" if drums else "has no notes")
    if division & 0x8000:
        frames, parts = 256 - (division >> 8), division & 0xFF
        if frames not in _FRAME_RATES or not parts:
            raise ValueError(f"is damaged: its division is {parts} parts of {frames} frames a second")
        rate, span = _FRAME_RATES[frames]
        units, first, tempos = rate * parts, span * 1_000_000, []
    else:
        units, first = division, _DEFAULT_TEMPO
    timed, end = _timed(sorted(notes), sorted(tempos, key=lambda tempo: tempo[0]), first, last)
    per_second = units * 1_000_000
    if end > MAX_SECONDS * per_second:
        raise ValueError(f"is too long: it claims {end // per_second:,} seconds, at most 24 hours are read")
    return timed, per_second


def _timed(
    notes: list[tuple[int, int]], tempos: list[tuple[int, int]], tempo: int, last: int
) -> tuple[list[tuple[int, int]], int]:
    """Ticks through the tempo map: (time, pitch), and the time of the last tick."""
    timed, changes = [], iter([*tempos, (last + 1, tempo)])
    change, following = next(changes)
    since, base = 0, 0
    for tick, pitch in [*notes, (last, 0)]:
        while change <= tick:
            base, since, tempo = base + (change - since) * tempo, change, following
            change, following = next(changes)
        timed.append((base + (tick - since) * tempo, pitch))
    end, _ = timed.pop()
    return timed, end


def _chunks(content: bytes) -> tuple[int, list[bytes]]:
    """The header's division and the tracks; chunks of other names are passed over, as the standard asks."""
    if not content:
        raise ValueError("is empty")
    content = _unwrapped(content)
    if not content.startswith(b"MThd"):
        guess = next((what for mark, what in _FOREIGN.items() if content.startswith(mark)), None)
        raise ValueError("is not a MIDI file" + (f": it looks like {guess}" if guess else ""))
    header = content[8:14]
    size = int.from_bytes(content[4:8])
    if len(header) < 6 or size < 6:
        raise ValueError("is cut short: its header is incomplete")
    form, claimed, division = (int.from_bytes(header[position : position + 2]) for position in (0, 2, 4))
    if form > 1:
        raise ValueError(f"has format {form}: its tracks share no clock; formats 0 and 1 are read")
    if division == 0:
        raise ValueError("has division 0: its ticks have no length")
    if claimed > MAX_TRACKS:
        raise ValueError(f"is too large: it claims {claimed:,} tracks, at most {MAX_TRACKS:,} are read")
    tracks: list[bytes] = []
    position = 8 + size
    while len(tracks) < claimed:
        name, size, position = (
            content[position : position + 4],
            int.from_bytes(content[position + 4 : position + 8]),
            position + 8,
        )
        if position > len(content):
            raise ValueError(f"is cut short: it claims {claimed} tracks and holds {len(tracks)}")
        if size > len(content) - position:
            raise ValueError(f"is cut short: a chunk claims {size:,} bytes, {len(content) - position:,} are left")
        if name == b"MTrk":
            tracks.append(content[position : position + size])
        position += size
    return division, tracks


def _unwrapped(content: bytes) -> bytes:
    """The MIDI file inside a RIFF file (.rmi), or the content as it is."""
    if not (content.startswith(b"RIFF") and content[8:12] == b"RMID"):
        return content
    start = 12
    while start + 8 <= len(content):
        name, size = content[start : start + 4], int.from_bytes(content[start + 4 : start + 8], "little")
        if size > len(content) - start - 8:
            raise ValueError(f"is cut short: a chunk claims {size:,} bytes, {len(content) - start - 8:,} are left")
        if name == b"data":
            return content[start + 8 : start + 8 + size]
        start += 8 + size + size % 2  # chunks begin at even places
    raise ValueError("is a RIFF file without music in it: it has no chunk of data")


def _events(track: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(tick, status byte, data) of what matters for time and notes, and (tick, 0, b"") for the rest."""
    position, tick, running = 0, 0, 0
    try:
        while position < len(track):
            delta, position = _number(track, position)
            tick += delta
            status = track[position]
            if status >= 0x80:
                position += 1
            elif running:
                status = running
            else:
                raise ValueError(f"is damaged: byte {position:,} of a track is data with no message to belong to")
            if status < 0xF0:
                running, size = status, _DATA[status & 0xF0]
            elif status == _META:
                kind = track[position]
                size, position = _number(track, position + 1)
            elif status in (0xF0, 0xF7):
                size, position = _number(track, position)
            else:
                size = _SYSTEM_DATA.get(status, 0)
            data, position = track[position : position + min(size, 3)], position + size
            if position > len(track):
                raise IndexError
            if status & 0xF0 == 0x90:
                if data[0] > 127:
                    raise ValueError(f"is damaged: a pitch of {data[0]}, where 127 is the highest")
                yield tick, status, data
            elif status == _META and kind == _TEMPO:
                if size != 3 or not any(data):
                    raise ValueError(f"is damaged: a tempo of {size} bytes or of no length")
                yield tick, status, data
            else:
                yield tick, 0, b""
                if status == _META and kind == _END:
                    return
    except IndexError:
        raise ValueError("is cut short: a message runs over the end of its track") from None


def _number(track: bytes, position: int) -> tuple[int, int]:
    """A variable-length number, and where it ends."""
    value = 0
    for byte in track[position : position + _NUMBER_BYTES]:
        value, position = value << 7 | byte & 0x7F, position + 1
        if byte < 0x80:
            return value, position
    if position < len(track):
        raise ValueError(f"is damaged: a number of over {_NUMBER_BYTES} bytes")
    raise IndexError
