"""What each thread of Python knows for itself."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unroll.engines.cpu.replay import Tape
    from unroll.engines.cpu.threadpool import Crew


class ThisThread(threading.local):
    """One in each thread: what a thread sets, no other sees."""

    parts = 0  # into how many work falls while torch itself is kept to one thread; otherwise 0 (`workers.py`)
    crew: Crew | None = None  # the threads that wait for its work in machine code (`threadpool.py`)
    tape: Tape | None = None  # the one that records what it computes (`replay.py`)


this_thread = ThisThread()
