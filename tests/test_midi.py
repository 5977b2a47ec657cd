"""MIDI in and out: the paper's reading rule, every bad file's reason, and notes that survive being written."""

from __future__ import annotations

import builtins
import importlib
import io
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import mido
import pytest
import symusic
from hypothesis import given, settings
from hypothesis import strategies as st

from unroll.errors import ConfigurationError, CorpusError, SymbolError
from unroll.midi import MidiError, Pieces, note_name, parse_notes, read_folder, read_groups, read_notes
from unroll.midi_out import NOTE_LENGTHS, TEMPOS, chords, write_midi

DATA = Path(os.environ.get("UNROLL_DATA") or "no-folder-was-given")
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


# The reading rule


def test_tracks_are_merged_by_time(tmp_path: Path) -> None:
    content = midi([on(0, 60), on(1000, 62)], [on(500, 40), on(1000, 41)])
    assert notes_of(tmp_path, content) == [60, 40, 62, 41]


def test_drums_are_left_out(tmp_path: Path) -> None:
    assert notes_of(tmp_path, midi([on(0, 60), on(100, 36, channel=9), on(100, 62)])) == [60, 62]


def test_simultaneous_notes_are_written_low_to_high_and_a_doubled_pitch_once(tmp_path: Path) -> None:
    content = midi([on(0, 67), on(0, 60), on(0, 64), on(0, 60)], [on(0, 67), on(500, 60)])
    assert notes_of(tmp_path, content) == [60, 64, 67, 60]


@pytest.mark.parametrize(
    ("gap", "tolerance", "expected"),
    [(30, 0.03, [60, 64]), (31, 0.03, [64, 60]), (1, 0.0, [64, 60]), (31, 0.031, [60, 64]), (250, 0.25, [60, 64])],
)
@pytest.mark.parametrize("start", [0, 500, 7_919, 123_457])
def test_the_tolerance_is_exact_wherever_in_the_piece(
    tmp_path: Path, start: int, gap: int, tolerance: float, expected: list[int]
) -> None:
    content = midi([on(start, 64), on(gap, 60)], division=MILLISECONDS)
    assert notes_of(tmp_path, content, tolerance=tolerance) == expected


def test_the_tolerance_counts_from_the_first_onset_of_a_group_and_does_not_chain(tmp_path: Path) -> None:
    content = midi([on(0, 70), on(20, 65), on(20, 60), on(20, 55)], division=MILLISECONDS)
    assert notes_of(tmp_path, content) == [65, 70, 55, 60]


def test_velocity_0_is_an_end_and_running_status_is_understood(tmp_path: Path) -> None:
    running = [on(0, 60), (400, bytes((60, 0))), (80, bytes((62, 64))), (400, bytes((62, 0)))]
    assert notes_of(tmp_path, midi(running)) == [60, 62]


def test_running_status_repeats_the_last_channel_message_whatever_it_was(tmp_path: Path) -> None:
    pedal, program, drum = (0, b"\xb0\x40\x7f"), (0, b"\xc0\x05"), on(0, 36, channel=9)
    content = midi([pedal, (9, b"\x40\0"), program, (9, b"\x06"), drum, (9, bytes((38, 64))), on(0, 60)])
    assert notes_of(tmp_path, content) == [60]


def test_running_status_goes_on_after_meta_and_system_exclusive_events(tmp_path: Path) -> None:
    content = midi([on(0, 60), (100, b"\xff\x01\x02hi"), (100, b"\xf0\x03\x41\x10\xf7"), (100, bytes((64, 64)))])
    assert notes_of(tmp_path, content) == [60, 64]


def test_other_messages_are_passed_over(tmp_path: Path) -> None:
    others = [
        b"\xa0\x3c\x01",
        b"\xb0\x40\x7f",
        b"\xc0\x05",
        b"\xd0\x10",
        b"\xe0\0\x40",
        b"\xf2\1\1",
        b"\xf3\1",
        b"\xf8",
    ]
    content = midi([(0, other) for other in others] + [on(0, 60), (90, b"\xf7\x02\x90\x01"), off(10, 60), on(100, 61)])
    assert notes_of(tmp_path, content) == [60, 61]


def test_the_time_before_an_unknown_meta_event_counts(tmp_path: Path) -> None:
    assert notes_of(tmp_path, midi([on(0, 64), (480, b"\xff\x60\x01\0"), on(0, 60)])) == [64, 60]


def test_an_odd_key_signature_spoils_nothing(tmp_path: Path) -> None:
    assert notes_of(tmp_path, midi([(0, b"\xff\x59\x02\x1f\x07"), on(0, 60)])) == [60]


def test_a_velocity_that_runs_over_is_still_a_note(tmp_path: Path) -> None:
    assert notes_of(tmp_path, midi([on(0, 60, velocity=200)])) == [60]


def test_chunks_of_other_names_and_what_follows_the_last_track_are_passed_over(tmp_path: Path) -> None:
    whole = midi([on(0, 60)])
    content = whole[:14] + b"XFIH" + struct.pack(">L", 3) + b"abc" + whole[14:] + b"junk"
    assert notes_of(tmp_path, content) == [60]


def test_tempo_changes_of_any_track_move_the_notes_of_all(tmp_path: Path) -> None:
    # 20 ticks last 20 ms, then 40 ms, then 20 ms again.
    clock = [tempo(1000, 1_000_000), tempo(1000, 500_000)]
    notes = [on(0, 64), on(20, 60), on(980, 64), on(20, 60), on(980, 64), on(20, 60)]
    assert notes_of(tmp_path, midi(notes, clock, division=MILLISECONDS)) == [60, 64, 64, 60, 60, 64]


@pytest.mark.parametrize(("frames", "parts"), [(24, 40), (25, 40), (29, 40), (30, 40)])
def test_smpte_divisions_are_clocks_of_their_own_and_tempo_is_nothing_to_them(
    tmp_path: Path, frames: int, parts: int
) -> None:
    division = (256 - frames) << 8 | parts
    near = int(0.03 * {29: 29.97}.get(frames, frames) * parts)
    content = midi([tempo(0, 1), on(0, 64), on(near, 60), on(1000, 64), on(near + 1, 60)], division=division)
    assert notes_of(tmp_path, content) == [60, 64, 64, 60]


def test_an_end_of_track_ends_it(tmp_path: Path) -> None:
    assert notes_of(tmp_path, midi([on(0, 60), END, on(10, 61)])) == [60]


times = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 127), st.integers(0, 15), st.integers(0, 127)), min_size=1
)


@unhurried
@given(tracks=st.lists(times, min_size=1, max_size=3), tempos=st.lists(st.integers(1, 0xFFFFFF), max_size=3))
def test_whole_files_are_read_as_mido_reads_them(
    tmp_path_factory: pytest.TempPathFactory, tracks: list[list[tuple[int, int, int, int]]], tempos: list[int]
) -> None:
    clock = [tempo(300, value) for value in tempos]
    notes = [[on(delta, pitch, channel, velocity) for delta, pitch, channel, velocity in track] for track in tracks]
    content = midi(clock, *notes, division=96)
    time, heard = 0.0, []
    for message in mido.MidiFile(file=io.BytesIO(content)):
        time += message.time
        if message.type == "note_on" and message.velocity and message.channel != 9:
            heard.append((time, message.note))
    if not heard:
        with pytest.raises(MidiError, match=r"has no notes|has only drums"):
            notes_of(tmp_path_factory.mktemp("mido"), content)
        return
    expected: list[tuple[float, set[int]]] = []
    for time, pitch in heard:
        # mido adds up floats: a hair more than the tolerance is the tolerance.
        if not expected or time - expected[-1][0] > 0.03 + 1e-9:
            expected.append((time, set()))
        expected[-1][1].add(pitch)
    assert notes_of(tmp_path_factory.mktemp("mido"), content) == [p for _, group in expected for p in sorted(group)]


# Bad files

WHOLE = midi([on(0, 60), on(480, 62)])
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
    monkeypatch.setattr(f"unroll.midi_bytes.{cap}", small)
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


# Folders


def folder_of(root: Path, **files: bytes) -> Path:
    for name, content in files.items():
        path = root.joinpath(*name.split("__"))
        path = path.with_name(path.name.replace("_", "."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def piece(*pitches: int) -> bytes:
    return midi([on(480, pitch) for pitch in pitches])


def names(pieces: Pieces, root: Path) -> list[str]:
    return [p.path.relative_to(root).as_posix() for p in pieces.pieces]


def test_a_folder_is_read_own_files_first_sorted_then_subfolders(tmp_path: Path) -> None:
    folder_of(
        tmp_path, b_mid=piece(2), a__z_KAR=piece(3), c__d__e_midi=piece(5), c__a_mid=piece(4), a_mid=piece(1), x_txt=b""
    )
    (tmp_path / "._a.mid").write_bytes(b"what macOS leaves behind")
    pieces = read_folder(tmp_path)
    assert names(pieces, tmp_path) == ["a.mid", "b.mid", "a/z.KAR", "c/a.mid", "c/d/e.midi"]
    assert pieces.text == "1\n2\n3\n4\n5\n"
    assert pieces.skipped == pieces.duplicates == ()


def test_one_file_is_a_corpus_of_one_piece(tmp_path: Path) -> None:
    folder_of(tmp_path, a_mid=piece(60, 64, 62))
    assert read_folder(tmp_path / "a.mid").text == "60 64 62\n"


def test_files_with_the_same_notes_are_kept_once_whatever_their_bytes(tmp_path: Path) -> None:
    again = midi([tempo(0, 400_000), on(7, 60), on(960, 62)], division=96)
    folder_of(tmp_path, a_mid=piece(60, 62), b_mid=again, c_mid=piece(62, 60), d_mid=piece(60, 62))
    pieces = read_folder(tmp_path)
    assert names(pieces, tmp_path) == ["a.mid", "c.mid"]
    kept = tmp_path / "a.mid"
    assert pieces.duplicates == ((tmp_path / "b.mid", kept), (tmp_path / "d.mid", kept))


def test_the_table_counts_what_was_read_and_what_was_not_and_why(tmp_path: Path) -> None:
    bad = {"e_mid": WHOLE[:10], "f_mid": WHOLE[:-6], "g_mid": b""}
    good = {f"{name}_mid": piece(*range(60, 60 + size)) for size, name in enumerate("abcd", 4)}
    pieces = read_folder(folder_of(tmp_path, **good, **bad, h_mid=piece(60, 61, 62, 63)))
    assert pieces.table() == [
        "files                 8",
        "pieces                4",
        "notes                22",
        "different pitches     7",
        "duplicates left out   1",
        "skipped               3",
        "  is cut short        2",
        "  is empty            1",
    ]
    assert [path.name for path, _ in pieces.skipped] == ["e.mid", "f.mid", "g.mid"]


def test_half_bad_is_read_and_more_than_half_is_refused_with_reasons(tmp_path: Path) -> None:
    folder_of(tmp_path, a_mid=piece(60), b_mid=b"")
    assert len(read_folder(tmp_path).pieces) == 1
    folder_of(tmp_path, c_mid=midi([on(0, 36, channel=9)]))
    with pytest.raises(CorpusError, match=r"2 of the 3 MIDI files in .* cannot be used") as caught:
        read_folder(tmp_path)
    assert f"{tmp_path / 'c.mid'} has only drums." in str(caught.value)


def test_a_folder_with_nothing_usable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="has no MIDI file in it"):
        read_folder(tmp_path)
    folder_of(tmp_path, a_mid=b"")
    with pytest.raises(CorpusError, match="1 of the 1 MIDI files"):
        read_folder(tmp_path)


# Names


def test_every_pitch_has_a_name_that_reads_back() -> None:
    assert [parse_notes(note_name(pitch)) for pitch in range(128)] == [[pitch] for pitch in range(128)]
    assert note_name(60) == "C4"


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("C4 E4 G4", [60, 64, 67]),
        ("C4,E4,,G4 ", [60, 64, 67]),
        ("C♯4 C#4 D♭4 Db4", [61, 61, 61, 61]),
        ("c4 bb3 b3 B3", [60, 58, 59, 59]),
        ("Cb4 B#3", [59, 60]),
        ("C-1 G9 0 127", [0, 127, 0, 127]),
        ("60\t62\n64", [60, 62, 64]),
        ("", []),
    ],
)
def test_prompts_are_names_or_numbers(text: str, notes: list[int]) -> None:
    assert parse_notes(text) == notes


def test_all_bad_words_of_a_prompt_are_told_at_once_with_their_places() -> None:
    with pytest.raises(SymbolError) as caught:
        parse_notes("C4 H4, 128 E4 A9 -1 4.5 " + "x" * 100)
    assert caught.value.problems == (
        "Word 2 of the notes, 'H4' at character 4, is not a note.",
        "Word 3 of the notes, '128' at character 8, is outside C-1 (0) to G9 (127).",
        "Word 5 of the notes, 'A9' at character 15, is outside C-1 (0) to G9 (127).",
        "Word 6 of the notes, '-1' at character 18, is outside C-1 (0) to G9 (127).",
        "Word 7 of the notes, '4.5' at character 21, is not a note.",
        f"Word 8 of the notes, '{'x' * 20}…' at character 25, is not a note.",
        "Write names such as C4, F#3, Bb5 or numbers from 0 to 127.",
    )


@given(text=st.text(max_size=30))
@unhurried
def test_any_prompt_is_read_or_refused_in_words(text: str) -> None:
    with suppress(SymbolError):
        assert all(0 <= note <= 127 for note in parse_notes(text))


# Writing


any_pieces = st.lists(st.lists(st.integers(0, 127), max_size=60), min_size=1, max_size=4).filter(any)


def by_symusic(path: Path) -> list[int]:
    """The same rule on another library's parsing: simultaneous by tick, low to high."""
    score = symusic.Score(str(path))
    return [pitch for _, pitch in sorted((note.time, note.pitch) for track in score.tracks for note in track.notes)]


@unhurried
@given(
    pieces=any_pieces,
    tempo=st.sampled_from((*TEMPOS, 100.0, 131.7)),
    note_length=st.sampled_from((*NOTE_LENGTHS, 0.5, 1 / 3)),
)
def test_written_notes_are_read_back_note_for_note_by_two_libraries(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[list[int]], tempo: float, note_length: float
) -> None:
    path = tmp_path_factory.mktemp("out") / "out.mid"
    write_midi(pieces, path, tempo, note_length)
    notes = [note for piece in pieces for note in piece]
    assert read_notes(path) == notes
    assert by_symusic(path) == notes


def test_what_is_written_is_a_tempo_a_piano_and_notes_that_all_end(tmp_path: Path) -> None:
    write_midi([[48, 60, 64, 67, 65, 65, 65], [60]], tmp_path / "out.mid", tempo=120)
    score = mido.MidiFile(tmp_path / "out.mid")
    (track,) = score.tracks
    assert [m.tempo for m in track if m.type == "set_tempo"] == [500_000]
    assert [m.program for m in track if m.type == "program_change"] == [0]
    sounding: set[int] = set()
    for message in track:
        if message.type == "note_on":
            assert message.note not in sounding, "a key is struck while it is down"
            sounding.add(message.note)
        elif message.type == "note_off":
            sounding.remove(message.note)
    assert sounding == set()
    velocities = [m.velocity for m in track if m.type == "note_on"]
    assert velocities == [88, 80, 80, 80, 70, 70, 70, 80], "bass of the first chord, the chord, the rest, a new piece"


def test_chords_are_rises_by_a_third_or_more_of_at_most_six_notes() -> None:
    assert chords([60, 64, 67]) == [[60, 64, 67]]
    assert chords([60, 62, 64, 65]) == [[60], [62], [64], [65]]
    assert chords([60, 60, 55]) == [[60], [60], [55]]
    assert chords([30, 40, 50, 60, 70, 80, 90]) == [[30, 40, 50, 60, 70, 80], [90]]


def test_pieces_are_set_apart_by_a_rest_and_end_on_a_long_note(tmp_path: Path) -> None:
    write_midi([[60, 59], [60, 59]], tmp_path / "out.mid")
    notes = symusic.Score(str(tmp_path / "out.mid")).tracks[0].notes
    assert [note.time for note in notes] == [0, 240, 1680, 1920]
    assert [note.duration for note in notes] == [259, 960, 259, 960]


def test_tempo_and_note_length_change_the_duration(tmp_path: Path) -> None:
    def seconds(**options: float) -> float:
        write_midi([[60, 59] * 20], tmp_path / "out.mid", **options)
        return float(mido.MidiFile(tmp_path / "out.mid").length)

    assert seconds() == pytest.approx(43 * 0.3)
    assert seconds(tempo=200) == pytest.approx(43 * 0.15)
    assert seconds(note_length=1.0) == pytest.approx(43 * 0.6)


def test_everything_wrong_with_a_request_to_write_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        write_midi([[60, 128, -1]], tmp_path / "out.mid", tempo=1000, note_length=float("nan"))
    assert caught.value.problems == (
        "tempo must be between 20 and 300 beats a minute. Got 1000.",
        "note_length must be between 0.25 and 4 beats. Got nan.",
        "Pitches must be between 0 and 127. Got -1, 128.",
    )
    assert not (tmp_path / "out.mid").exists()


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [([], "no notes"), ([[]], "no notes"), ([[60] * 125_001], "at most 125,000 notes"), ([[60] * 8000], "24 hours")],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path: Path, pieces: list[list[int]], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        write_midi(pieces, tmp_path / "out.mid", tempo=20, note_length=4)


# The sample files


with_data = pytest.mark.skipif(not (DATA / "midi").is_dir(), reason=f"no sample MIDI files ({DATA / 'midi'})")


@pytest.mark.data
@with_data
def test_all_sample_files_are_read_and_are_lines_of_the_music_corpus() -> None:
    pieces = read_folder(DATA / "midi")
    assert (len(pieces.pieces), pieces.skipped, pieces.duplicates) == (20, (), ())
    # The corpus was extracted with symusic, by others.
    assert set(pieces.text.splitlines()) <= set((DATA / "music.txt").read_text().splitlines())


@pytest.mark.data
@with_data
def test_the_chord_rule_is_as_good_as_the_documentation_says(capsys: pytest.CaptureFixture[str]) -> None:
    def joins(groups: list[list[int]]) -> list[bool]:
        """For every note, whether it sounds with the one before."""
        return [place > 0 for group in groups for place in range(len(group))]

    pairs = []
    for path in sorted((DATA / "midi").iterdir()):
        true = read_groups(path)
        pairs += list(zip(joins(chords([p for group in true for p in group])), joins(true), strict=True))
    both, said, real = sum(s and r for s, r in pairs), sum(s for s, _ in pairs), sum(r for _, r in pairs)
    with capsys.disabled():
        print(
            f"\n{len(pairs):,} notes: precision {both}/{said} = {both / said:.3f}, recall {both / real:.3f} of {real}"
        )
    assert round(both / said, 3) == 0.836
    assert round(both / real, 3) == 0.992
