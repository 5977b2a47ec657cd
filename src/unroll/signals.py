"""Ctrl-C, SIGTERM and a closing terminal as a question that the loop asks between two steps, so as to save first."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

HANGUP = getattr(signal, "SIGHUP", None)  # a terminal's window is closed, or its connection lost
SIGNALS = (signal.SIGINT, signal.SIGTERM, *([HANGUP] if HANGUP else []))


class Pressed(Exception):
    """A signal has arrived; the loop unwinds to where it saves."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Watch:
    """While it is held, the first signal is noted and a second Ctrl-C quits at once."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Watch:
        # Only a program's main thread may set handlers; elsewhere signals belong to somebody else.
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if number == HANGUP and signal.getsignal(number) == signal.SIG_IGN:
                    continue  # as `nohup` asks for
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise if a signal has arrived."""
        if self.number is not None:
            raise Pressed(self.number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number
