"""A MIDI file that cannot be read is named with its reason, and costs little."""

from __future__ import annotations

import builtins
import importlib
import os
from pathlib import Path
from typing import Any

import pytest
from midi_files import WHOLE, midi, notes_of, off, on, tempo, track_of

from unroll.base.errors import ConfigurationError, CorpusError
from unroll.corpus.music.reading import MidiError, read_folder, read_notes
from unroll.corpus.music.writing import write_midi

BAD = {
    "empty": (b"", "is empty"),
    "mp3": (b"ID3\x04\0\0\0\0\0\0", "is not a MIDI file: it looks like an MP3"),
    "noise": (b"\x01\x02\x03\x04" * 100, "is not a MIDI file"),
    "html": (b"<!doctype html>", "is not a MIDI file: it looks like a web page or XML"),
    "header only": (WHOLE[:10], "is cut short: its header is incomplete"),
    "track missing": (WHOLE[:14], "is cut short: it claims 1 tracks and holds 0"),
    "half a track": (WHOLE[:-6], "is cut short: a chunk claims 13 bytes, 7 are left"),
    "half a message": (WHOLE[:14] + track_of([(0, b"\x90\x3c")]), "is cut short: a message runs over the end"),
    "a long text": (WHOLE[:14] + track_of([(0, b"\xff\x01\xff\x7f")]), "is cut short: a message runs over the end"),
    "claimed length": (WHOLE[:18] + b"\xff\xff\xff\xff" + WHOLE[22:], "a chunk claims 4,294,967,295 bytes, 13 are"),
    "no notes": (midi([tempo(0, 500_000)]), "has no notes"),
    "no tracks": (midi(), "has no notes"),
    "only ends": (midi([on(0, 60, velocity=0), off(0, 61)]), "has no notes"),
    "drums only": (midi([on(0, 36, channel=9)]), "has only drums"),
    "division 0": (midi([on(0, 60)], division=0), "has division 0"),
    "smpte 0": (midi([on(0, 60)], division=0xE700), "is damaged: its division is 0 parts of 25 frames"),
    "smpte 17": (midi([on(0, 60)], division=0xEF28), "is damaged: its division is 40 parts of 17 frames"),
    "format 2": (midi([on(0, 60)], form=2), "has format 2"),
    "10^18 seconds": (midi([on(0, 60), on(10**18 * 960, 62)]), "is too long: it claims 1,000,000,000,000,000,000 sec"),
    "108 days": (midi([tempo(0, 0xFFFFFF), on(0, 60), on(0x0FFFFFFF, 61)]), "is too long: it claims 9,382,498 seconds"),
    "tempo 0": (midi([tempo(0, 0), on(0, 60)]), "is damaged: a tempo"),
    "short tempo": (midi([(0, b"\xff\x51\x01\x07"), on(0, 60)]), "is damaged: a tempo of 1 bytes"),
    "high pitch": (midi([on(0, 200)]), "is damaged: a pitch of 200"),
    "stray data": (midi([(0, b"\x3c\x40")]), "is damaged: byte 1 of a track is data with no message"),
    "endless number": (WHOLE[:14] + track_of([(0, b"\xff\x01" + b"\xff" * 100_000)]), "a number of over 10 bytes"),
    "60,000 tracks": (WHOLE[:10] + b"\xea\x60" + WHOLE[12:], "is too large: it claims 60,000 tracks"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named_with_its_reason(tmp_path: Path, name: str) -> None:
    content, reason = BAD[name]
    with pytest.raises(CorpusError) as caught:
        notes_of(tmp_path, content)
    assert str(caught.value).startswith(f"{tmp_path / 'file.mid'} ")
    assert reason in str(caught.value)


def test_a_day_is_read_and_a_tick_more_is_not(tmp_path: Path) -> None:
    day = 24 * 60 * 60 * 960
    assert notes_of(tmp_path, midi([on(0, 60), on(day, 62)])) == [60, 62]
    with pytest.raises(MidiError, match="is too long: it claims 86,400 seconds, at most 24 hours are read"):
        notes_of(tmp_path, midi([on(0, 60), on(day + 1, 62)]))


@pytest.mark.parametrize(
    ("cap", "small", "reason"),
    [("MAX_EVENTS", 2, "is too large: over 2 events"), ("MAX_SECONDS", 0, "is too long: it claims 0 seconds")],
)
def test_caps_inside_a_file_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: str, small: int, reason: str
) -> None:
    monkeypatch.setattr(f"unroll.corpus.music.midi_bytes.{cap}", small)
    with pytest.raises(MidiError, match=reason):
        notes_of(tmp_path, WHOLE)


def test_a_file_over_the_size_cap_is_not_even_parsed(tmp_path: Path) -> None:
    path = tmp_path / "big.mid"
    with open(path, "wb") as file:
        file.truncate(2**40)  # sparse
    with pytest.raises(MidiError, match="is too large: over 16 MiB"):
        read_notes(path)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mid")
    with pytest.raises(MidiError, match="not a regular file"):
        read_notes(tmp_path / "pipe.mid")
    with pytest.raises(MidiError, match="No such file"):
        read_folder(tmp_path / "missing.mid")


@pytest.mark.parametrize("tolerance", [-0.1, 1.5, float("nan")])
def test_a_tolerance_out_of_range_is_refused(tmp_path: Path, tolerance: float) -> None:
    with pytest.raises(ConfigurationError, match="tolerance must be between 0 and 1 second"):
        notes_of(tmp_path, WHOLE, tolerance=tolerance)


def test_without_mido_the_command_that_installs_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str, *rest: Any) -> Any:
        if name == "mido":
            raise ModuleNotFoundError(name)
        return builtins.__import__(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ConfigurationError) as caught:
        notes_of(tmp_path, WHOLE)
    assert str(caught.value) == "Reading MIDI needs the midi extra: pip install 'unroll-rnn[midi]'."
    with pytest.raises(ConfigurationError, match="Writing MIDI needs the midi extra"):
        write_midi([[60]], tmp_path / "out.mid")
