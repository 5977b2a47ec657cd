"""Notes as a MIDI file to listen to.

The data says which notes and in which order, not when. Since simultaneous notes are written low to high, a rise by a
third or more is heard as one chord (docs/music.md says how often that is right); all else follows at an even pace.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unroll.base import atomic_files
from unroll.base.errors import ConfigurationError
from unroll.corpus.music.midi_bytes import MAX_EVENTS, MAX_SECONDS, extra

CHORD_STEP = 3  # semitones: seconds inside a chord are rare, in a scale they are the rule
CHORD_NOTES = 6
# At 300 beats a minute a quarter of a beat is 50 ms, so that neighbours are never read back as one chord (30 ms).
TEMPOS = (20.0, 300.0)
NOTE_LENGTHS = (0.25, 4.0)

_TICKS = 480  # a beat
_VELOCITY, _BASS, _ACCENT = 70, 8, 10
_ACCENT_EVERY = 4  # groups
_LEGATO = 0.08  # of a step, into the next
_LAST_STEPS, _REST_STEPS = 4, 2


def chords(notes: Sequence[int]) -> list[list[int]]:
    """The notes in the same order, those to be played together in one list.

    >>> chords([60, 64, 67, 69, 71, 60])
    [[60, 64, 67], [69], [71], [60]]
    """
    groups: list[list[int]] = []
    for note in notes:
        if groups and note - groups[-1][-1] >= CHORD_STEP and len(groups[-1]) < CHORD_NOTES:
            groups[-1].append(note)
        else:
            groups.append([note])
    return groups


def write_midi(
    pieces: Sequence[Sequence[int]], path: str | Path, tempo: float = 100.0, note_length: float = 0.5
) -> None:
    """Pieces, one after the other, as a piano would play them; `read_notes` gives the same notes back."""
    groups = [chords(piece) for piece in pieces if piece]
    _refuse(pieces, groups, tempo, note_length)
    mido = extra("Writing")
    track = mido.MidiTrack(
        [
            mido.MetaMessage("track_name", name="unroll"),
            mido.MetaMessage("set_tempo", tempo=round(60_000_000 / tempo)),
            mido.Message("program_change", program=0),
        ]
    )
    _play(track, groups, round(_TICKS * note_length), mido)
    content = io.BytesIO()
    mido.MidiFile(type=0, ticks_per_beat=_TICKS, tracks=[track]).save(file=content)
    atomic_files.write(Path(path), content.getvalue())


def _play(track: Any, pieces: list[list[list[int]]], step: int, mido: Any) -> None:
    """Append every note to the track."""
    events: list[tuple[int, int, int, int]] = []  # tick, 0 for off and 1 for on, pitch, velocity: in playing order
    tick = 0
    for piece in pieces:
        for place, group in enumerate(piece):
            following = piece[place + 1] if place + 1 < len(piece) else None
            for voice, pitch in enumerate(group):
                bass = _BASS if voice == 0 and len(group) > 1 else 0
                accent = _ACCENT if place % _ACCENT_EVERY == 0 else 0
                if following is None:
                    length = step * _LAST_STEPS
                else:
                    # A key must be let go before it is struck again.
                    length = round(step * (1 - _LEGATO if pitch in following else 1 + _LEGATO))
                events.append((tick, 1, pitch, _VELOCITY + bass + accent))
                events.append((tick + length, 0, pitch, 0))
            tick += step
        tick += step * (_LAST_STEPS - 1 + _REST_STEPS)
    now = 0
    for tick, on, pitch, velocity in sorted(events):
        kind = "note_on" if on else "note_off"
        track.append(mido.Message(kind, note=pitch, velocity=velocity, time=tick - now))
        now = tick


def out_of_range(tempo: float, note_length: float) -> list[str]:
    """What is wrong with these, in words."""
    problems = []
    for name, value, (low, high) in (("tempo", tempo, TEMPOS), ("note_length", note_length, NOTE_LENGTHS)):
        if not (math.isfinite(value) and low <= value <= high):
            unit = "beats a minute" if name == "tempo" else "beats"
            problems.append(f"{name} must be between {low:g} and {high:g} {unit}. Got {value}.")
    return problems


def _refuse(pieces: Sequence[Sequence[int]], groups: list[list[list[int]]], tempo: float, note_length: float) -> None:
    """Everything that is wrong with a request to write, at once."""
    problems = out_of_range(tempo, note_length)
    if not groups:
        problems.append("There are no notes to write.")
    wrong = sorted({note for piece in pieces for note in piece if not 0 <= note <= 127})
    if wrong:
        problems.append(f"Pitches must be between 0 and 127. Got {', '.join(map(str, wrong[:10]))}.")
    if sum(map(len, pieces)) > MAX_EVENTS // 4:
        problems.append(f"A file takes at most {MAX_EVENTS // 4:,} notes. Write several.")
    elif not problems:
        steps = sum(len(piece) + _LAST_STEPS - 1 + _REST_STEPS for piece in groups)
        if steps * note_length * 60 / tempo > MAX_SECONDS:
            problems.append("The file would last over 24 hours. Raise tempo, lower note_length or write several.")
    if problems:
        raise ConfigurationError(*problems)
