"""One fleet after the other in this process, the last one first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unroll.corpus.open_corpora import Library
from unroll.sweep.launchers import Job, Report, work


def run(jobs: Sequence[Job], library: Library) -> Iterator[Report]:
    """Each in turn, from the last to the first."""
    for job in reversed(jobs):
        yield from work(job, library)
