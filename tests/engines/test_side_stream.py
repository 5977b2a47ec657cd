"""Outside a step that uses the side stream, side work is done at once and in order."""

from __future__ import annotations

from unroll.engines.cuda import side_stream


def test_outside_of_a_step_with_a_side_stream_all_work_is_done_at_once() -> None:
    done: list[str] = []

    def pack() -> str:
        done.append("packed")
        return "made"

    side_stream.begins()
    assert side_stream.done(pack) == "made"
    side_stream.later(lambda: done.append("multiplied"))
    assert done == ["packed", "multiplied"]
    side_stream.catch_up()
    side_stream.wait()
    side_stream.finish()
    assert done == ["packed", "multiplied"]
