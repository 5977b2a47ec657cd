"""What belongs to one thread of Python alone."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unroll.engines.cpu.replay import RecordedCalls
    from unroll.engines.cpu.threadpool import Threadpool


class ThisThread(threading.local):
    """One in each thread: no other thread sees what a thread sets here."""

    parts = 0  # parts that work is cut into while torch itself is kept to one thread, or 0 (`workers.py`)
    pool: Threadpool | None = None  # the threads that wait for its work in machine code (`threadpool.py`)
    recording: RecordedCalls | None = None  # the recording of what it computes (`replay.py`)


this_thread = ThisThread()
