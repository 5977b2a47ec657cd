"""`unroll.advise`: which settings suit a text, found by a pilot within a budget of time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unroll.base.durations import seconds_in
from unroll.base.errors import Interrupted
from unroll.base.live import require_progress
from unroll.corpus.corpus import Corpus
from unroll.corpus.open_corpora import Library
from unroll.sweep.advice import asked as asking
from unroll.sweep.advice.drive import drive
from unroll.sweep.advice.folder import AdviceFolder
from unroll.sweep.advice.shown import Advice, read
from unroll.sweep.comparison.compare import default_out as beside
from unroll.sweep.launchers import Report
from unroll.sweep.paced.clock import clock


def advise(
    corpus: str | Path | Corpus,
    budget: str | float = asking.BUDGET,
    *,
    need: str = "quality",
    out: str | Path | None = None,
    preset: str = asking.PRESET,
    most: int | None = None,
    launcher: str = "local",
    save_every: int | None = None,
    progress: bool | None = None,
    on_event: Callable[[Report], object] | None = None,
    **settings: Any,
) -> Advice:
    """Find out by short trainings which settings suit a text, and what a full run with them will reach.

    budget     how long all of it may take: "90s", "5m", "1h", or seconds
    need       what counts most: quality, speed (of training and sampling) or memory
    out        the folder; one that holds this pilot goes on, also with a larger budget
    settings   of `Experiment`, with k1 and k2: what is said holds for every run, and is not varied.
               `batches` are those of the full run

    >>> import tempfile, unroll
    >>> text = unroll.Corpus.from_text("to be or not to be, that is the question. " * 200)
    >>> tiny = dict(k2=10, hidden=8, dense=16, rows=4, threads=1, learning_rate=0.01, batches=400)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = unroll.advise(text, 60, out=folder, most=4, **tiny)
    >>> len(found.sentences), found.setting["hidden"]
    (5, 8)
    """
    from unroll.sweep.progress import watched

    began = time.monotonic()
    require_progress(progress)
    seconds = seconds_in(budget) if isinstance(budget, str) else budget
    text = corpus if isinstance(corpus, Corpus) else None
    source = "" if text is not None else os.fspath(corpus)  # type: ignore[arg-type]
    asked = asking.asked(source, seconds, need, settings, preset)
    if text is not None:
        asked = asked.described(text)
    folder = AdviceFolder(out or default_out(text.name if text else source))
    reports = drive(folder, Library([text] if text else ()), asked, clock(began=began), most, save_every, launcher)
    try:
        watched(reports, progress, on_event)
    except Interrupted as error:
        raise error.with_advice(f"unroll.advise(…, out={str(folder.path)!r}), as before") from None
    return read(folder)


def default_out(corpus: str) -> Path:
    """Where advice goes unless somebody says otherwise."""
    return Path("advice") / beside(corpus).name
