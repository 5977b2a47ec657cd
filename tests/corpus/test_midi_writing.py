"""Notes as MIDI files that any player opens and that read back note for note."""

from __future__ import annotations

import os
from pathlib import Path

import mido
import pytest
import symusic
from hypothesis import given
from hypothesis import strategies as st
from midi_files import unhurried

from unroll.base.errors import ConfigurationError
from unroll.corpus.music.reading import read_folder, read_groups, read_notes
from unroll.corpus.music.writing import NOTE_LENGTHS, TEMPOS, chords, write_midi

DATA = Path(os.environ.get("UNROLL_DATA") or "no-folder-was-given")


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
