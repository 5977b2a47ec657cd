"""One fleet after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unroll.corpus.open_corpora import Library
from unroll.sweep.launchers import Job, Report
from unroll.sweep.launchers._work import work


def run(jobs: Sequence[Job], library: Library) -> Iterator[Report]:
    """Each in turn."""
    for job in jobs:
        yield from work(job, library)
