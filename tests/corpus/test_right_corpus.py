"""Twenty mixed folders and more than twenty wrong files: the right corpus or a clear refusal, never a wrong one."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import pickle
import random
import sqlite3
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import TINY, unroll
from midi_files import midi, on

from unroll import Corpus, Experiment
from unroll.base.errors import CorpusError
from unroll.base.wording import shell_words

PROSE = b"It was the best of times, it was the worst of times.\n" * 40  # 2,120 bytes
SOURCE = b"int main(void)\n{\n\treturn 0;\n}\n" * 70  # 2,170 bytes
CSV = b"id,name,price\n" + b"17,tea,3.50\n" * 180  # 2,174 bytes
JSON_LINES = b'{"text": "to be or not"}\n' * 90
FASTA = b">one\nACGTACGTACGT\n>two\nTTGACCAGTA\n" * 60
NOISE = random.Random(5).randbytes(2_000)


@pytest.fixture(autouse=True)
def at_a_shell() -> Iterator[None]:
    """Refusals are in the words of the command line."""
    with shell_words():
        yield


def tune(pitch: int, notes: int = 40) -> bytes:
    return midi([on(240, pitch + step % 5) for step in range(notes)])


def line(pitch: int, notes: int = 40) -> str:
    return " ".join(str(pitch + step % 5) for step in range(notes)) + "\n"


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def tarred(content: bytes) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        entry = tarfile.TarInfo("inside.txt")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def zipped(name: str = "inside.txt", content: bytes = PROSE) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr(name, content)
    return written.getvalue()


def saved(save: Callable[..., None], *content: object, **named: object) -> bytes:
    written = io.BytesIO()
    save(written, *content, **named)
    return written.getvalue()


def database() -> bytes:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("create table texts (text)")
        return bytes(connection.serialize())


def safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + NOISE
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n" + NOISE
PARQUET = b"PAR1\x15\x04\x15" + NOISE + b"PAR1"
ARROW = b"ARROW1\0\0" + NOISE

Files = dict[str, bytes]
# A folder's files, options, and the whole text of the corpus; or words of the refusal.
FOLDERS: dict[str, tuple[Files, dict[str, object], str | list[str]]] = {
    "1,427 tunes in small and a note": (
        {**{f"{n:02}.mid": tune(40 + n) for n in range(30)}, "readme.txt": b"Tunes of mine.\n"}, {},
        "".join(line(40 + n) for n in range(30)),
    ),
    "tunes and as much prose": (
        {**{f"{n:02}.mid": tune(40 + n) for n in range(9)}, "about.txt": PROSE}, {},
        ["not clearly one corpus", "9 MIDI files", "1 text file", "--kind notes", "--kind chars", "% of bytes"],
    ),
    "tunes and as much prose, asked for as notes": (
        {"a.mid": tune(40), "b.mid": tune(41), "about.txt": PROSE}, {"kind": "notes"}, line(40) + line(41),
    ),
    "tunes and as much prose, asked for as characters": (
        {"a.mid": tune(40), "about.txt": PROSE}, {"kind": "chars"}, PROSE.decode(),
    ),
    "prose and one tune": ({"a.mid": tune(40), "a.txt": PROSE, "b.txt": PROSE}, {}, 2 * PROSE.decode()),
    "tunes and a long list of them": (
        {**{f"{n:02}.mid": tune(40 + n) for n in range(9)}, "all.csv": CSV * 20, "README.md": b"# Tunes\n" * 60}, {},
        ["not clearly one corpus", "9 MIDI files", "Of the text 99 % are tables", "--kind notes", "--kind chars"],
    ),
    "prose and one tune with a list of it": (
        {"a.mid": tune(40), "a.txt": 9 * PROSE, "b.csv": CSV[:200]}, {}, 9 * PROSE.decode() + CSV[:200].decode(),
    ),
    "tunes alone, asked for as characters": (
        {"a.mid": tune(40)}, {"kind": "chars"}, ["has no text in it", "--kind notes reads the music"],
    ),
    "texts of notes beside a tune": (
        {"a.txt": line(60).encode() * 90, "b.mid": tune(40)}, {}, line(60) * 90,
    ),
    "a repository": (
        {"src/a.c": SOURCE, "src/b.c": SOURCE, "README.md": b"# A program\n", "data.csv": CSV[:300]}, {},
        "# A program\n" + CSV[:300].decode() + 2 * SOURCE.decode(),
    ),
    "a repository that is half tables": (
        {"a.c": SOURCE, "b.csv": CSV, "README.md": b"# A program\n"}, {},
        ["not clearly one corpus", "tables or data", "--exclude '*.csv'", "--ext .csv", "--kind chars"],
    ),
    "a repository that is half tables, all of it asked for": (
        {"a.c": SOURCE, "b.csv": CSV}, {"kind": "chars"}, (SOURCE + CSV).decode(),
    ),
    "a repository that is half tables, its source asked for": (
        {"a.c": SOURCE, "b.csv": CSV}, {"ext": (".c",)}, SOURCE.decode(),
    ),
    "a repository without its tables": ({"a.c": SOURCE, "b.csv": CSV}, {"exclude": ("*.csv",)}, SOURCE.decode()),
    "tables called .txt beside prose": (
        {"a.txt": CSV, "b.txt": PROSE}, {},
        ["not clearly one corpus", "tables or data", "2 files", "--exclude 'a.txt'"],
    ),
    "documents with a note": (
        {"a.pdf": PDF, "b.pdf": PDF, "README.md": b"Read these.\n"}, {},
        ["not clearly one corpus", "2 PDF documents", "under 1 %", "pdftotext", "--kind chars"],
    ),
    "documents alone": ({"a.pdf": PDF}, {}, ["has no text in it", "1 PDF document", "pdftotext"]),
    "a data set with a card": (
        {"train-0.parquet": PARQUET, "train-1.parquet": PARQUET, "README.md": PROSE[:500]}, {},
        ["not clearly one corpus", "2 Parquet files", "read_parquet"],
    ),
    "prose with a picture": ({"a.txt": PROSE, "b.txt": PROSE, "cover.png": PNG}, {}, 2 * PROSE.decode()),
    "pictures with their captions": (
        {**{f"{n}.png": PNG for n in range(9)}, "captions.txt": PROSE}, {},
        ["not clearly one corpus", "9 PNG pictures"],
    ),
    "compressed texts with a note": (
        {"a.txt.gz": gzip.compress(PROSE), "b.txt.xz": lzma.compress(SOURCE), "README": b"Two.\n"}, {},
        (PROSE + SOURCE).decode(),
    ),
    "a text and compressed ones that weigh little": (
        {"a.txt": PROSE * 3, "b.txt.gz": gzip.compress(PROSE)}, {}, 3 * PROSE.decode(),
    ),
    "a text and a compressed one of its weight": (
        {"a.txt": PROSE[:100], "b.txt.gz": gzip.compress(PROSE)}, {},
        ["not clearly one corpus", "1 compressed text", "--ext .gz", "--exclude '*.gz'"],
    ),
    "archives of a folder": ({"a.tar.gz": gzip.compress(tarred(PROSE))}, {}, ["no text", "1 tar archive", "Unpack"]),
    "pointers of Git-LFS": (
        {"a.txt": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"}, {}, ["no text", "git lfs pull"],
    ),
    "noise, asked for as bytes": (
        {"a.bin": NOISE, "b.png": PNG, "c.txt": PROSE}, {"kind": "bytes"},
        (NOISE + PNG + PROSE).decode("utf-8", "surrogateescape"),
    ),
    "tunes, asked for as bytes": (
        {"a.mid": tune(40)}, {"kind": "bytes"}, tune(40).decode("utf-8", "surrogateescape"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_a_mixed_folder_is_the_right_corpus_or_refused_in_words(name: str, tmp_path: Path) -> None:
    files, options, expected = FOLDERS[name]
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    if isinstance(expected, str):
        corpus = Corpus.open(str(tmp_path), **options)
        assert corpus.vocabulary.decode(corpus.ids) == expected
        left_out = 0 if "ext" in options or "exclude" in options else len(files) - corpus.extent.files
        assert (f"{left_out} file" in corpus.notes[0]) if left_out else "skipped" not in corpus.notes[0]
        return
    with pytest.raises(CorpusError) as refusal:
        Corpus.open(str(tmp_path), **options)
    assert [words for words in expected if words not in str(refusal.value)] == []


# A file, options, and the whole text of the corpus and words of a note; or words of the refusal.
WRONG: dict[str, tuple[str, bytes, dict[str, object], str | None, list[str]]] = {
    "gzip": ("a.txt.gz", gzip.compress(PROSE), {}, PROSE.decode(), ["compressed with gzip"]),
    "gzip of two members": ("a.gz", gzip.compress(b"one ") + gzip.compress(b"two"), {}, "one two", ["gzip"]),
    "gzip without its ending": ("a.txt", gzip.compress(PROSE), {}, PROSE.decode(), ["compressed with gzip"]),
    "xz": ("a.txt.xz", lzma.compress(PROSE), {}, PROSE.decode(), ["compressed with xz"]),
    "xz of two streams": ("a.xz", lzma.compress(b"one ") + bytes(4) + lzma.compress(b"two"), {}, "one two", ["xz"]),
    "gzip as bytes": ("a.gz", gzip.compress(b"a", mtime=0)[:10], {"kind": "bytes"}, None, []),
    "gzip cut short": ("a.gz", gzip.compress(NOISE)[:-20], {}, None, ["is cut short", "Bring the whole file"]),
    "xz cut short": ("a.xz", lzma.compress(NOISE)[:-20], {}, None, ["is cut short"]),
    "gzip with a flipped byte": ("a.gz", flipped(gzip.compress(NOISE)), {}, None, ["is damaged", "gzip"]),
    "xz with a flipped byte": ("a.xz", flipped(lzma.compress(NOISE)), {}, None, ["is damaged", "xz"]),
    "gzip of a tar archive": ("a.tgz", gzip.compress(tarred(PROSE)), {}, None, ["is a tar archive", "Unpack it"]),
    "gzip of a picture": ("a.gz", gzip.compress(PNG), {}, None, ["is a PNG picture"]),
    "tar": ("a.tar", tarred(PROSE), {}, None, ["is a tar archive", "Unpack it"]),
    "zip": ("a.zip", zipped(), {}, None, ["is a zip archive", "Unpack it"]),
    "Word": ("a.docx", zipped("word/document.xml"), {}, None, ["is an Office document", "plain text"]),
    "a spreadsheet": ("a.xlsx", zipped("[Content_Types].xml"), {}, None, ["is an Office document"]),
    "EPUB": ("a.epub", zipped("mimetype", b"application/epub+zip"), {}, None, ["is an EPUB book", "pandoc"]),
    "bzip2": ("a.bz2", b"BZh91AY&SY" + NOISE, {}, None, ["is a bzip2 file", "bunzip2"]),
    "PDF": ("a.pdf", PDF, {}, None, ["is a PDF document", "pdftotext"]),
    "PDF in letters": ("a.pdf", b"%PDF-1.0\n1 0 obj\n", {}, None, ["is a PDF document"]),
    "PDF called a text in latin-1": ("a.txt", PDF, {"encoding": "latin-1"}, None, ["is a PDF document"]),
    "RTF": ("a.rtf", b"{\\rtf1\\ansi text}", {}, None, ["is an RTF document"]),
    "PNG": ("a.png", PNG, {}, None, ["is a PNG picture", "--kind bytes"]),
    "JPEG": ("a.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF" + NOISE, {}, None, ["is a JPEG picture"]),
    "WebP": ("a.webp", b"RIFF\0\1\0\0WEBPVP8 " + NOISE, {}, None, ["is a picture"]),
    "WAV": ("a.wav", b"RIFF\0\1\0\0WAVEfmt " + NOISE, {}, None, ["is a sound or video file", "MIDI"]),
    "MP4": ("a.mp4", b"\0\0\0\x20ftypisom" + NOISE, {}, None, ["is a sound or video file"]),
    "Parquet": ("a.parquet", PARQUET, {}, None, ["is a Parquet file", "read_parquet"]),
    "Arrow": ("a.arrow", ARROW, {}, None, ["is an Arrow file", "pyarrow"]),
    "a pickle": ("a.pkl", pickle.dumps(["text"] * 9), {}, None, ["is a pickle", "runs code"]),
    "an old pickle": ("a.pkl", pickle.dumps(["text"], protocol=0), {}, None, ["is a pickle"]),
    "PyTorch": ("a.pt", zipped("archive/data.pkl"), {}, None, ["is a PyTorch file", "runs code"]),
    "NumPy": ("a.npy", saved(np.save, np.arange(9)), {}, None, ["is a NumPy file", "from_ids"]),
    "NumPy's archive": ("a.npz", saved(np.savez, a=np.arange(9)), {}, None, ["is a NumPy file"]),
    "SQLite": ("a.db", database(), {}, None, ["is an SQLite database", "sqlite3"]),
    "safetensors": ("a.safetensors", safetensors(), {}, None, ["is a weights file"]),
    "a program": ("a.out", b"\x7fELF\2\1\1" + bytes(9) + NOISE, {}, None, ["is a compiled program"]),
    "noise": ("a.bin", b"\xfe" + NOISE, {}, None, ["is not utf-8", "--kind bytes"]),
    "MIDI without its ending": ("tune", tune(40), {}, line(40), ["pieces 1"]),
    "MIDI as characters": ("a.mid", tune(40), {"kind": "chars"}, None, ["is a MIDI file", "--kind notes, or bytes"]),
    "MIDI as bytes": ("a.mid", tune(40), {"kind": "bytes"}, tune(40).decode("utf-8", "surrogateescape"), []),
    "a web page called MIDI": ("a.mid", b"<!doctype html>", {}, None, ["is not a MIDI file", "a web page"]),
    "CSV": ("a.csv", CSV, {}, CSV.decode(), ["looks like CSV", "--kind ids --separator ','"]),
    "CSV in fields": ("a.csv", CSV, {"kind": "ids", "separator": ","}, CSV.decode(), []),
    "CSV in words": ("a.csv", CSV, {"kind": "words"}, CSV.decode(), ["looks like CSV", "word by word"]),
    "CSV as ids without a separator": (
        "a.csv", CSV, {"kind": "ids"}, CSV.decode().removesuffix("\n") + "\n", ["--separator ','"],
    ),
    "TSV": ("a.tsv", CSV.replace(b",", b"\t"), {}, CSV.decode().replace(",", "\t"), ["TSV", "--separator tab"]),
    "JSON Lines": ("a.jsonl", JSON_LINES, {}, JSON_LINES.decode(), ["looks like JSON Lines"]),
    "FASTA": ("a.fa", FASTA, {}, FASTA.decode(), ["looks like FASTA"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_read_for_what_it_is_with_a_note_or_refused_by_its_name(name: str, tmp_path: Path) -> None:
    file, content, options, text, words = WRONG[name]
    path = tmp_path / file
    path.write_bytes(content)
    if options.get("kind") == "bytes":
        corpus = Corpus.open(str(path), **options)
        assert corpus.vocabulary.render(corpus.ids) == content
    elif text is not None:
        corpus = Corpus.open(str(path), **options)
        assert corpus.vocabulary.decode(corpus.ids) == text
        assert [word for word in words if word not in " ".join(corpus.notes)] == []
        assert words or not corpus.notes
    else:
        with pytest.raises(CorpusError) as refusal:
            Corpus.open(str(path), **options)
        assert str(refusal.value).startswith(str(path))
        assert [word for word in words if word not in str(refusal.value)] == []


@pytest.mark.parametrize(
    "text",
    [
        PROSE, SOURCE, b"PAR1 is a name, MThd another.\n" * 9, b"BM and BZh and PK\x03\n"[:10] * 9,
        b"> a letter\n> that is quoted\n" * 9, b'{"a": 1}\nno more of it\n' * 9, b"To be, or not\nto be\n" * 20,
        b"a, b, c\nand, so\nforth\n" * 20, b"int a;\nint b;\nint c;\n" * 20, b"RIFF RAFF\n" * 40, b"GIF8 is old\n" * 9,
    ],
)  # fmt: skip
def test_a_text_that_only_begins_like_something_else_is_read_without_a_note(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(text)
    corpus = Corpus.open(str(tmp_path / "a.txt"))
    assert corpus.vocabulary.decode(corpus.ids) == text.decode()
    assert corpus.notes == ()


# --- a run reads another text by the same rule, and finds its text again ----------------------------------------------


def test_eval_of_another_folder_follows_its_weight_and_not_the_runs_kind(tmp_path: Path) -> None:
    for name, content in {
        "text/a.txt": PROSE, "tunes/a.mid": tune(40), "tunes/b.mid": tune(41), "tunes/readme.txt": b"the best\n",
        "mixed/a.mid": tune(40, 400), "mixed/a.txt": PROSE,
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert unroll("train", tmp_path / "text", "--batches", 3, "--out", tmp_path / "run", "-q", *TINY).code == 0
    result = unroll("eval", tmp_path / "run", "--corpus", tmp_path / "text")
    assert (result.code, result.err.count("1 text file read")) == (0, 1)
    for folder, words in (("tunes", "is music: 2 MIDI files"), ("mixed", "is not clearly one corpus")):
        result = unroll("eval", tmp_path / "run", "--corpus", tmp_path / folder)
        assert result.code == 2
        assert words in result.err
        assert "--kind" not in result.err.partition("This run reads")[2]
    result = unroll("score", tmp_path / "run", tmp_path / "tunes" / "a.mid")
    assert "is a MIDI file, and this run reads chars" in result.err


@pytest.mark.parametrize("kind", ["notes", "chars", "bytes"])
def test_a_run_finds_the_files_again_that_its_kind_chose_in_a_mixed_folder(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name, content in {"a.mid": tune(40, 300), "b.txt": PROSE, "c.txt.gz": gzip.compress(b"x"), "d": NOISE}.items():
        (folder / name).write_bytes(content)
    options = ["--kind", kind, "--batches", 3, "--out", tmp_path / "run", "-q", *TINY]
    assert unroll("train", folder, *options).code == 0
    assert unroll("eval", tmp_path / "run").code == 0


def test_a_run_of_compressed_texts_finds_them_again_and_so_does_one_of_a_compressed_file(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt.gz").write_bytes(gzip.compress(PROSE))
    (folder / "b.txt.xz").write_bytes(lzma.compress(PROSE))
    for name, source in (("folder", folder), ("file", folder / "a.txt.gz")):
        assert unroll("train", source, "--batches", 3, "--out", tmp_path / name, "-q", *TINY).code == 0
        assert unroll("eval", tmp_path / name).code == 0
    (folder / "a.txt.gz").write_bytes(gzip.compress(PROSE + b"more"))
    for name in ("folder", "file"):
        assert "not the corpus that this run was trained on" in unroll("eval", tmp_path / name).err


@pytest.mark.parametrize(
    ("kind", "names", "text"),
    [
        ("bytes", ("b.txt",), PROSE.decode()),  # what versions before this rule read of a folder, whatever the kind
        ("chars", ("b.txt",), PROSE.decode()),
        ("notes", ("a.mid",), line(40)),
        ("notes", ("a.mid", "e.rmi"), line(40) + line(50)),
        ("chars", ("c.txt.gz",), "compressed"),
        ("bytes", ("a.mid", "b.txt", "c.txt.gz", "d", "e.rmi"), None),
    ],
)
def test_the_files_of_a_run_are_those_whose_number_and_size_it_recorded(
    kind: str, names: tuple[str, ...], text: str | None, tmp_path: Path
) -> None:
    wrapped = b"RIFF" + (12).to_bytes(4, "little") + b"RMIDdata" + len(tune(50)).to_bytes(4, "little") + tune(50)
    contents = {
        "a.mid": tune(40),
        "b.txt": PROSE,
        "c.txt.gz": gzip.compress(b"compressed"),
        "d": NOISE,
        "e.rmi": wrapped,
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    size = sum(len(contents[name]) for name in names)
    recorded = Experiment(corpus=str(tmp_path), kind=kind, sha256="0" * 64, tokens=9, files=len(names), bytes=size)
    corpus = Corpus.named(recorded)
    assert (corpus.extent.files, corpus.extent.bytes) == (len(names), size)
    if text is None:
        assert corpus.vocabulary.render(corpus.ids) == b"".join(contents.values())
    else:
        assert corpus.vocabulary.decode(corpus.ids) == text
    with pytest.raises(CorpusError, match="is not the corpus that this run was trained on"):
        Corpus.named(replace(recorded, bytes=size + 1))
