"""One fleet after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unroll.launchers import Job, Report
from unroll.launchers._work import work
from unroll.library import Library


def run(jobs: Sequence[Job], library: Library) -> Iterator[Report]:
    """Each in turn."""
    for job in jobs:
        yield from work(job, library)
