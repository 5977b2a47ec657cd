"""Ctrl-C, SIGTERM and a closing terminal as a question that the loop asks between two steps, so as to save first."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

HANGUP = getattr(signal, "SIGHUP", None)  # a terminal's window is closed, or its connection lost
BREAK = getattr(signal, "SIGBREAK", None)  # Ctrl-Break, of Windows
SIGNALS = tuple(number for number in (signal.SIGINT, signal.SIGTERM, HANGUP, BREAK) if number)


class Pressed(Exception):
    """A signal has arrived; the loop unwinds to where it saves."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Watch:
    """While it is held, the first signal is noted and a second Ctrl-C quits at once."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.quits = False  # by a second Ctrl-C: nothing more is to be saved
        self._told = self._over = False
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
        self._over = True
        # A generator may be closed by another thread than began it: then the next signal puts the handlers back.
        if threading.current_thread() is threading.main_thread():
            self._put_back()
            before = getattr(self._before.get(self.number or 0), "__self__", None)
            if isinstance(before, Watch) and self.number is not None and not self._told:
                before.number = self.number  # nobody has asked here: the watch around this one will

    def _put_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise if a signal has arrived."""
        if self.number is not None:
            self._told = True
            raise Pressed(self.number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._over:
            self._put_back()
            signal.raise_signal(number)
            return
        if self.number is not None and number == signal.SIGINT:
            self.quits = True
            raise KeyboardInterrupt
        self.number = number
