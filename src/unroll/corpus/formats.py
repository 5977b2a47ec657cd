"""What a file is that holds no plain text, by its first bytes, and what its owner can do."""

from __future__ import annotations

from dataclasses import dataclass

LFS_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True)
class Format:
    """A format by its name, and the advice that goes with it."""

    name: str  # with its article: "a PDF document"
    advice: str

    @property
    def noun(self) -> str:
        """The name without its article, to be counted."""
        return self.name.partition(" ")[2]


_TABLE = "Write the column of text to a file first"
_PICTURE = Format("a picture", "A picture holds no text; its bytes can be trained on with --kind bytes.")
_SOUND = Format("a sound or video file", "For music bring MIDI files; its bytes can be trained on with --kind bytes.")
_ARCHIVE = "Unpack it, and name the folder that comes out."
_PROGRAM = Format("a compiled program", "Its source can be trained on, and its bytes with --kind bytes.")

PDF = Format("a PDF document", "Extract its text first, for example with `pdftotext -layout FILE.pdf FILE.txt`.")
ZIP = Format("a zip archive", _ARCHIVE)
TAR = Format("a tar archive", _ARCHIVE)
MIDI = Format("a MIDI file", "--kind notes reads it, and --kind bytes its bytes.")
PICKLE = Format("a pickle", "Loading it runs code, so Unroll never does. Write what it holds to a text file first.")
EPUB = Format("an EPUB book", "Convert it to text first, for example with `pandoc FILE.epub -t plain -o FILE.txt`.")
OFFICE = Format(
    "an Office document", "Save it as plain text first, for example with `pandoc FILE -t plain -o FILE.txt`."
)
NUMPY = Format("a NumPy file", "In Python: unroll.Corpus.from_ids(numpy.load(FILE)).")
POINTER = Format("a Git-LFS pointer", "Run `git lfs pull` where it came from.")
_WEIGHTS = Format("a weights file", "A model’s weights are no text.")
_SQLITE = Format("an SQLite database", f"{_TABLE}: `sqlite3 FILE 'select …' > FILE.txt`.")
_HDF5 = Format("an HDF5 file", f"{_TABLE}, with h5py.")

# Marks that no text begins with.
_BINARY = {
    b"\x89PNG": Format("a PNG picture", _PICTURE.advice),
    b"\xff\xd8\xff": Format("a JPEG picture", _PICTURE.advice),
    b"II*\0": Format("a TIFF picture", _PICTURE.advice),
    b"MM\0*": Format("a TIFF picture", _PICTURE.advice),
    b"ARROW1\0\0": Format("an Arrow file", f"{_TABLE}, with pyarrow."),
    b"\xff\xff\xff\xff": Format("an Arrow stream", f"{_TABLE}, with pyarrow."),
    b"\x93NUMPY": NUMPY,
    b"\x89HDF\r\n": _HDF5,
    b"SQLite format 3\0": _SQLITE,
    b"\xd0\xcf\x11\xe0": OFFICE,
    b"7z\xbc\xaf\x27\x1c": Format("a 7z archive", _ARCHIVE),
    b"Rar!\x1a\x07": Format("a RAR archive", _ARCHIVE),
    b"\x7fELF": _PROGRAM,
    b"\0asm": _PROGRAM,
    b"\xcf\xfa\xed\xfe": _PROGRAM,
    b"\xca\xfe\xba\xbe": _PROGRAM,
    b"\xff\xfb": _SOUND,
    b"\x1a\x45\xdf\xa3": _SOUND,
    **{b"\x80" + bytes([protocol]): PICKLE for protocol in range(2, 6)},
}
# Marks that a text might begin with: they count where the bytes after them are no text.
_LETTERS = {
    b"PK\x03\x04": ZIP,
    b"PAR1": Format("a Parquet file", f"{_TABLE}: `pandas.read_parquet(FILE)[COLUMN]`."),
    b"MThd": MIDI,
    b"BZh": Format("a bzip2 file", "Expand it with `bunzip2 -k FILE`, and name what comes out."),
    b"GIF8": Format("a GIF picture", _PICTURE.advice),
    b"BM": _PICTURE,
    b"RIFF": _SOUND,
    b"OggS": _SOUND,
    b"fLaC": _SOUND,
    b"ID3": _SOUND,
    b"GGUF": _WEIGHTS,
    b"MZ": _PROGRAM,
}
# Formats that are written in letters.
_WRITTEN = {
    b"%PDF-": PDF,
    b"{\\rtf": Format("an RTF document", "Save it as plain text first."),
    b"(lp0\n": PICKLE,
    b"(dp0\n": PICKLE,
    b"(dp1\n": PICKLE,
    LFS_POINTER: POINTER,
}


def recognise(first: bytes) -> Format | None:
    """The format that a file's first few kilobytes belong to; None where they may be text or are not known."""
    if _is_safetensors(first):
        return _WEIGHTS
    if first[257:262] == b"ustar" and _is_binary(first):
        return TAR
    marks = {**_BINARY, **_WRITTEN, **(_LETTERS if _is_binary(first) else {})}
    form = next((form for mark, form in marks.items() if first.startswith(mark)), None)
    if form is _SOUND and first[8:12] == b"RMID":
        return MIDI
    if form is _SOUND and first[8:12] == b"WEBP":
        return _PICTURE
    if form is None and first[4:8] == b"ftyp":
        return _SOUND
    return _inside_zip(first) if form is ZIP else form


def _is_binary(first: bytes) -> bool:
    return any(byte < 32 and byte not in b"\t\n\r\f\x1b\x1a\b" for byte in first[:512])


def _is_safetensors(first: bytes) -> bool:
    return first[4:10] == b'\0\0\0\0{"' and len(first) > 16


def _inside_zip(first: bytes) -> Format:
    name = first[30 : 30 + int.from_bytes(first[26:28], "little")]
    if name == b"mimetype" and b"application/epub" in first[:128]:
        return EPUB
    if name == b"[Content_Types].xml" or name.startswith((b"word/", b"xl/", b"ppt/", b"mimetype")):
        return OFFICE
    if name.endswith(b".npy"):
        return NUMPY
    if name.endswith(b"/data.pkl"):
        return Format("a PyTorch file", PICKLE.advice)
    return ZIP
