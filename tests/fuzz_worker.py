"""Reads MIDI files or texts for fuzzing in a separate process, so that a death or a hang is seen from outside.

Standard input: a length of four bytes, then that many bytes of a file; again and again. Standard output: a JSON line
for each: `answer` ("read", "refused", or a traceback) and `peak` (MiB of memory, the most so far).
The first line is given before any file, for the base.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from pathlib import Path

from unroll.base.errors import CorpusError
from unroll.corpus.corpus import Corpus
from unroll.corpus.music.reading import read_notes


def peak() -> float:
    """MiB. Not getrusage: there a process starts with its parent's peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def read(kind: str, path: Path) -> None:
    """As the program would: notes, or a corpus with everything that `data info` shows of it."""
    if kind == "midi":
        read_notes(path)
        return
    corpus = Corpus.open(str(path))
    if corpus.split(0).test > 1:
        corpus.bigram_perplexity()


def answer(kind: str, path: Path) -> str:
    try:
        read(kind, path)
        return "read"
    except CorpusError as error:
        has_reason = str(error).startswith((f"{path} ", "Token ")) and str(error).endswith(".")
        return "refused" if has_reason else f"no reason: {error}"
    except BaseException:
        return traceback.format_exc()


def main() -> None:
    import mido  # noqa: F401  (part of the base)

    kind = sys.argv[1]
    print(json.dumps({"answer": "ready", "peak": peak()}), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.mid" if kind == "midi" else "file.txt")
        while size := sys.stdin.buffer.read(4):
            path.write_bytes(sys.stdin.buffer.read(int.from_bytes(size)))
            print(json.dumps({"answer": answer(kind, path), "peak": peak()}), flush=True)


if __name__ == "__main__":
    main()
