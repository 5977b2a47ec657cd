"""Folders of MIDI files as corpora, and notes by their names."""

from __future__ import annotations

import gzip
import lzma
from contextlib import suppress
from pathlib import Path

import pytest
from commands import unroll
from hypothesis import given
from hypothesis import strategies as st
from midi_files import WHOLE, midi, on, tempo, unhurried

from unroll.base.errors import CorpusError, SymbolError
from unroll.corpus.corpus import Corpus
from unroll.corpus.music.reading import Pieces, note_name, parse_notes, read_folder


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


def test_what_a_folder_is_taken_for_is_decided_by_the_weight_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder_of(tmp_path, a_mid=piece(60, 62)))
    assert Corpus.open(".").vocabulary.kind == "notes"
    assert Corpus.open(".").name == tmp_path.name
    assert Corpus.open(".", ext=(".mid",)).tokens == 3
    with pytest.raises(CorpusError, match=r'no text in it that ext="\.c"'):
        Corpus.open(".", ext=(".c",))
    folder_of(tmp_path, readme_txt=b"Tunes.")
    (note,) = Corpus.open(".").notes
    assert note.startswith("1 MIDI file (86 % of bytes) read; 1 file skipped: 1 text file (14 % of bytes). files 1,")
    folder_of(tmp_path, readme_txt=b"Tunes." * 4)
    with pytest.raises(CorpusError, match=r"is not clearly one corpus: 1 MIDI file .*, 1 text file .* Say which"):
        Corpus.open(".")
    assert Corpus.open(".", kind="notes").tokens == 3
    assert Corpus.open(".", kind="bytes").tokens == 24 + 36
    assert Corpus.open(".", kind="chars").tokens == 24
    folder_of(tmp_path, readme_txt=b"Tunes." * 40)
    (note,) = Corpus.open(".").notes
    assert note.startswith("1 text file (87 % of bytes) read; 1 file skipped, not utf-8 text: 1 MIDI file")
    assert "`unroll data midi . --out notes.txt`" in note


def test_music_is_chosen_among_by_name_as_text_is(tmp_path: Path) -> None:
    folder_of(tmp_path, a_mid=piece(60), b_mid=piece(62), sub__c_mid=piece(64))
    corpus = Corpus.open(str(tmp_path), exclude=("b*",))
    assert corpus.vocabulary.decode(corpus.ids) == "60\n64\n"
    assert corpus.extent.files == 2


def riff(content: bytes) -> bytes:
    chunks = b"RMIDLIST" + (3).to_bytes(4, "little") + b"abc\0" + b"data" + len(content).to_bytes(4, "little") + content
    return b"RIFF" + len(chunks).to_bytes(4, "little") + chunks


def test_music_in_riff_files_compressed_or_in_a_folder_that_is_named_like_a_file_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "x.mid"
    for name, content in {
        "a.rmi": riff(piece(60)), "b.mid.gz": gzip.compress(piece(61)), "c.midi.xz": lzma.compress(piece(62)),
        "d.mid/e.kar": piece(63), "f.rmi.gz": gzip.compress(riff(piece(64))), "g.MID": piece(65),
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for source in (tmp_path, folder):
        corpus = Corpus.open(str(source))
        assert corpus.vocabulary.decode(corpus.ids) == "60\n61\n62\n64\n65\n63\n"
        assert corpus.extent.files == 6
    assert sorted(read_folder(folder).text.split()) == ["60", "61", "62", "63", "64", "65"]


def test_damaged_wrappings_of_music_are_skipped_with_their_reason(tmp_path: Path) -> None:
    whole = gzip.compress(piece(60))
    folder_of(tmp_path, a_mid=piece(60), b_mid=piece(61), c_mid=piece(62), d_mid=piece(63))
    (tmp_path / "e.mid.gz").write_bytes(whole[:-9])
    (tmp_path / "f.rmi").write_bytes(riff(piece(60))[:-3])
    (tmp_path / "g.rmi").write_bytes(b"RIFF\4\0\0\0RMID")
    (tmp_path / "h.mid.gz").write_bytes(gzip.compress(bytes(17 * 2**20)))
    assert [reason.partition(":")[0] for _, reason in read_folder(tmp_path).skipped] == [
        "is cut short", "is cut short", "is a RIFF file without music in it", "is too large",
    ]  # fmt: skip


def test_duplicates_are_named_as_skipped_files_are(tmp_path: Path) -> None:
    folder_of(tmp_path, in__a_mid=piece(60), in__b_mid=piece(60), in__c_mid=piece(61), in__d_mid=b"")
    result = unroll("data", "midi", tmp_path / "in", "--out", tmp_path / "notes.txt")
    assert f"{tmp_path}/in/b.mid: has the same notes as {tmp_path}/in/a.mid" in result.err
    assert f"{tmp_path}/in/d.mid: is empty" in result.err


def test_a_folder_with_nothing_usable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="has no MIDI file in it"):
        read_folder(tmp_path)
    folder_of(tmp_path, a_mid=b"")
    with pytest.raises(CorpusError, match="1 of the 1 MIDI files"):
        read_folder(tmp_path)


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
