"""Reads MIDI files for test_midi_fuzz.py in a process of its own, so that a death or a hang is seen from outside.

Standard input: a length of four bytes, then that many bytes of a file; again and again. Standard output: a JSON line
for each: `answer` ("notes", "refused", or a traceback), `notes`, `peak` (MiB of memory, the most so far).
The first line is given before any file, for the base.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from pathlib import Path

from unroll.errors import CorpusError
from unroll.midi import read_notes


def peak() -> float:
    """MiB. Not getrusage: there a process starts with its parent's peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def answer(path: Path) -> tuple[str, int]:
    try:
        return "notes", len(read_notes(path))
    except CorpusError as error:
        told = str(error).startswith(f"{path} ") and str(error).endswith(".")
        return ("refused" if told else f"no reason: {error}"), 0
    except BaseException:
        return traceback.format_exc(), 0


def main() -> None:
    import mido  # noqa: F401  (part of the base)

    print(json.dumps({"answer": "ready", "notes": 0, "peak": peak()}), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.mid")
        while size := sys.stdin.buffer.read(4):
            path.write_bytes(sys.stdin.buffer.read(int.from_bytes(size)))
            said, notes = answer(path)
            print(json.dumps({"answer": said, "notes": notes, "peak": peak()}), flush=True)


if __name__ == "__main__":
    main()
