"""One fleet after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from unroll.sweep.launchers import Job, Report, work

if TYPE_CHECKING:
    from unroll.corpus.open_corpora import Library


def run(jobs: Sequence[Job], library: Library) -> Iterator[Report]:
    """Each in turn."""
    for job in jobs:
        yield from work(job, library)
