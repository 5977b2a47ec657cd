"""Files fed to a worker process that is watched from outside: for a death, a hang, a flood, or a traceback."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

SECONDS = 2.0  # for one file
MEBIBYTES = 200.0  # over the base


class Watched:
    """The worker, seen from outside; a new one for each that dies."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # of file: midi or text
        self.deaths: list[str] = []
        self.peak = 0.0  # MiB over the base, of all workers
        self._start()

    def _start(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("fuzz_worker.py")), self.kind]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ready = self._line(60.0)
        assert ready is not None, "the worker did not start"
        self.base = float(ready["peak"])

    def _line(self, seconds: float) -> dict[str, Any] | None:
        assert self.process.stdout
        # A line is flushed whole and asked for one at a time, so that nothing waits in the reader's own buffer.
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def read(self, content: bytes) -> str:
        assert self.process.stdin
        with suppress(BrokenPipeError):
            self.process.stdin.write(len(content).to_bytes(4) + content)
            self.process.stdin.flush()
        line = self._line(SECONDS)
        if line is None:
            hung = not select.select([self.process.stdout], [], [], 0)[0]  # the end of a dead one's output is readable
            self.stop()
            death = f"no answer in {SECONDS} s" if hung else f"died with {self.process.returncode}"
            self.deaths.append(f"{death}: {content.hex()}")
            self._start()
            return "death"
        self.peak = max(self.peak, line["peak"] - self.base)
        return str(line["answer"])

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


def check_answers(watched: Watched, files: Iterable[bytes]) -> Counter[str]:
    """Every file is read or refused in words, within the limits; how often each."""
    answers: Counter[str] = Counter()
    for content in files:
        said = watched.read(content)
        assert said in ("read", "refused", "death"), f"{said}\n{content.hex()}"
        answers[said] += 1
    assert watched.deaths == []
    assert watched.peak < MEBIBYTES
    return answers
