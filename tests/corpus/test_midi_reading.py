"""How a MIDI file becomes notes."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import mido
import pytest
from hypothesis import given
from hypothesis import strategies as st
from midi_files import END, MILLISECONDS, midi, notes_of, off, on, tempo, unhurried

from unroll.corpus.music.reading import MidiError


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
