"""What one thread of Python sets for itself, no other sees."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from unroll.engines.cpu.this_thread import ThisThread


def test_a_thread_begins_with_nothing_and_keeps_to_itself_what_it_sets() -> None:
    known = ThisThread()
    known.parts = 3
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: (known.parts, known.pool, known.recording)).result() == (0, None, None)
        other.submit(setattr, known, "parts", 5).result()
    assert known.parts == 3
