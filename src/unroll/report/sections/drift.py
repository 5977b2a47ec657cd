"""Perplexity by the tokens read since the state was reset: does a state that runs on grow stale?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unroll.base.errors import RunError
from unroll.report import blocks
from unroll.report.blocks import BAD, GOOD, Block
from unroll.report.sections import Look, Part

if TYPE_CHECKING:
    from unroll.runs.drift import Bin, Drift
    from unroll.runs.loaded import Run

ABOUT = "perplexity by the tokens since the state was reset"
STARTS = 64  # stretches
TOKENS = 6_000  # of the test set, at most
SURE = 2.0  # standard errors
WORDS = (
    "Training shows a model states up to k2 tokens old; progressive sampling lets the state run on. Above 0 an old "
    "state is worse than a fresh window of k2 tokens; at 0 progressive sampling gives as much for less; below 0 the "
    "model remembers more than a window holds."
)
METHOD = (
    f"{STARTS} stretches of the test set's first {TOKENS:,} tokens are read side by side from the reset state. Each "
    "prediction is compared with that of a fresh window of k2 tokens on the same token; the mean difference is added "
    "to the perplexity of windows over the whole stretch. Shaded: ± 1 standard error over the stretches; the table has "
    "± 2."
)


def estimate(run: Run) -> float:
    """Windows of the test set, and stretches that cost as much as some."""
    from unroll.report.rehearsal import seconds_of_windows
    from unroll.runs.drift import reach
    from unroll.runs.loaded import text_ids

    k2 = run.experiment.scheme.k2
    length = min(len(text_ids(run, None)), TOKENS)
    return seconds_of_windows(run, length + STARTS * reach(length, k2) // k2)


def look(run: Run) -> dict[str, Any]:
    """One run's drift, bin by bin."""
    from unroll.runs.drift import perplexity_since_reset

    drift = perplexity_since_reset(run, starts=STARTS, test_tokens=TOKENS)
    if not math.isfinite(drift.windowed.perplexity):
        raise RunError("The perplexity is too large for a number: the weights have diverged.")
    return {
        "k2": drift.k2,
        "windowed": _short(drift.windowed.perplexity),
        "bins": [
            [b.first, b.last, *_perplexities(drift, b), _short(b.above), _short(b.above_error)] for b in drift.bins
        ],
        "row": _row(drift),
    }


def _perplexities(drift: Drift, ages: Bin) -> list[float | None]:
    return [_short(drift.perplexity(ages, errors)) for errors in (0, -1, 1)]


def _short(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


def _row(drift: Drift) -> list[Any]:
    """What the table says: the oldest states beside fresh windows."""
    at_k2 = next((b for b in drift.bins if b.last == drift.k2), drift.bins[-1])
    oldest = drift.bins[-1]
    sure = SURE * oldest.above_error
    if oldest.above - sure > 0:
        verdict = blocks.chip("worse when old", BAD)
    elif oldest.above + sure < 0:
        verdict = blocks.chip("better when old", GOOD)
    else:
        verdict = blocks.chip("no difference seen")
    words = f"{oldest.above:+.4f} ± {oldest.above_error:.4f}".replace("-", "−")
    picture = blocks.interval(oldest.above, oldest.above - sure, oldest.above + sure, words, at=0.0)
    numbers = [drift.windowed.perplexity, drift.perplexity(at_k2), drift.perplexity(oldest)]
    return [*(f"{number:,.3f}" for number in numbers), f"{oldest.first:,} to {oldest.last:,}", picture, verdict]


def section(looks: Sequence[Look]) -> Part:
    """One line for each run, runs of one setting in one colour, and a table of the oldest states."""
    groups = list(dict.fromkeys(each.group for each in looks))
    chart: Block = {
        "kind": "drift",
        "groups": groups,
        "runs": [
            {"label": each.label, "group": groups.index(each.group)}
            | {name: each.seen[name] for name in ("k2", "windowed", "bins")}
            for each in looks
        ],
    }
    columns = ["run", "windowed", "at age k2", "at the oldest ages", "oldest ages", "nats above windowed"]
    rows = [[each.label, *each.seen["row"]] for each in looks]
    table = blocks.table("The oldest states beside fresh windows", [*columns, "verdict"], rows)
    return Part(
        "drift",
        "drift",
        "Does a state grow stale?",
        WORDS,
        [chart, table, blocks.folded("How this is computed", METHOD)],
    )
