"""`unroll.compare`: schemes on one corpus at equal budgets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unroll.base.durations import seconds_in
from unroll.base.errors import Interrupted
from unroll.base.live import require_progress
from unroll.corpus.corpus import Corpus
from unroll.corpus.open_corpora import Library
from unroll.sweep.comparison import asked as asking
from unroll.sweep.comparison.drive import drive
from unroll.sweep.comparison.folder import ComparisonFolder
from unroll.sweep.comparison.shown import Comparison, read
from unroll.sweep.launchers import Report
from unroll.sweep.paced.clock import clock

BUDGET = "10m"


def compare(
    corpus: str | Path | Corpus,
    schemes: Sequence[Any] = (1, 2, 3, 4),
    *,
    k1: int | Sequence[int] | None = None,
    seeds: int = asking.SEEDS,
    budget: str | float | None = None,
    batches: int | None = None,
    out: str | Path | None = None,
    preset: str = asking.PRESET,
    most: int | None = None,
    launcher: str = "local",
    save_every: int | None = None,
    progress: bool | None = None,
    on_event: Callable[[Report], object] | None = None,
    **settings: Any,
) -> Comparison:
    """Compare schemes on a text of your own at equal budgets, and say what to take, and how sure that is.

    schemes    numbers of the paper's, a `Scheme`, or a mapping of a Scheme's fields
    k1         one or several; a fifth of k2, and k2, otherwise
    seeds      how many: each scheme with each k1 is trained so many times
    budget     how long all of it may take: "90s", "10m", "1h", or seconds; ten minutes unless `batches` are said
    batches    how many every run gets, instead of a budget of time
    out        the folder; one that holds this comparison goes on, also with a larger budget
    settings   of `Experiment`, for all runs, on top of the preset's

    >>> import tempfile, unroll
    >>> text = unroll.Corpus.from_text("to be or not to be, that is the question. " * 100)
    >>> tiny = dict(k2=10, hidden=8, dense=16, rows=4, threads=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = unroll.compare(text, (1, 2), k1=5, seeds=2, batches=12, out=folder, most=4, **tiny)
    >>> sorted(one["scheme"] for one in found.schemes), len(found.sentences)
    (['scheme 1', 'scheme 2'], 3)
    """
    from unroll.sweep.progress import watched

    began = time.monotonic()
    require_progress(progress)
    if budget is None and batches is None:
        budget = BUDGET
    seconds = seconds_in(budget) if isinstance(budget, str) else budget
    settings = {name: value for name, value in settings.items() if value is not None}
    text = corpus if isinstance(corpus, Corpus) else None
    source = "" if text is not None else os.fspath(corpus)  # type: ignore[arg-type]
    several = [k1] if isinstance(k1, int) else k1
    found = asking.asked(source, asking.schemes_of(schemes), several, seeds, seconds, batches, settings, preset)
    if text is not None:
        found = found.described(text)
    folder = ComparisonFolder(out or default_out(text.name if text else source))
    library = Library([text] if text else ())
    reports = drive(folder, library, found, clock(began=began), most, save_every, launcher)
    try:
        watched(reports, progress, on_event)
    except Interrupted as error:
        raise error.with_advice(f"unroll.compare(…, out={str(folder.path)!r}), as before") from None
    return read(folder)


def default_out(corpus: str) -> Path:
    """Where a comparison goes unless somebody says otherwise."""
    name = Path(corpus).name or "text"
    return Path("compare") / "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
