"""Where no step may branch, side work is done at once and in order: what is waited for is always there."""

from __future__ import annotations

from unroll import beside


def test_outside_of_a_step_that_may_branch_everything_is_done_at_once() -> None:
    done: list[str] = []

    def pack() -> str:
        done.append("packed")
        return "made"

    beside.begins()
    assert beside.done(pack) == "made"
    beside.later(lambda: done.append("multiplied"))
    assert done == ["packed", "multiplied"]
    beside.catch_up()
    beside.wait()
    beside.finish()
    assert done == ["packed", "multiplied"]
