"""What a sweep answers: each setting's mean over seeds with an interval, and whether the seeds tell it from the best.

`sweep/answers.py` says how it is computed. Runs that come from no sweep are compared in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unroll.report import blocks
from unroll.report.blocks import BAD, FAIR, GOOD, Block
from unroll.report.gathering import Gathered
from unroll.report.labels import value_words
from unroll.report.sections import Part
from unroll.sweep import table
from unroll.sweep.answers import Answer, Interval, Standing, answers
from unroll.sweep.deduplicate import named

METHOD = (
    "Runs that differ in nothing but the seed are one setting. Means are geometric, intervals are Student's at 95 %, "
    "over the seeds. Settings are compared seed by seed with the one whose mean is lowest; that one was picked by "
    "looking, so each difference is held to a stricter level: 5 % divided by the number of comparisons."
)

VERDICTS = {
    True: blocks.chip("higher", BAD),
    False: blocks.chip("cannot be told apart", FAIR),
    None: blocks.chip("one seed in common"),
}


def section(gathered: Gathered) -> list[Part]:
    """Answer for each sweep, and for the other runs together."""
    tables: list[tuple[str, list[table.Row]]] = []
    compared = {name for name, _ in gathered.comparisons}  # whose answer stands on the page already
    for name, sweep in gathered.sweeps:
        if name in compared:
            continue
        trainings = sweep.trainings
        failures = {run: failure["reason"] for run, failure in sweep.failures.items()}
        folders = {training.name: sweep.run(training.name) for training in trainings}
        title = f"What the sweep {name} answers" if len(gathered.sweeps) > 1 else "What the sweep answers"
        tables.append((title, table.rows(trainings, folders, failures)))
    loose = [each for each in gathered.folders if each[0] not in gathered.of_sweeps]
    if loose:
        trainings = [named(name, [experiment]) for name, _, experiment in loose]
        folders = {name: folder for name, folder, _ in loose}
        tables.append(("What the runs answer", table.rows(trainings, folders, {})))
    parts: list[Part] = []
    for name, rows in tables:
        several = len({row["corpus"] for row in rows}) > 1
        for answer in answers(rows):
            title = f"{name}: {answer.corpus}" if several else name
            number = f"-{len(parts) + 1}" if parts else ""
            parts.append(Part(f"answer{number}", f"answer{number}", title, "", _blocks(answer), leads=True))
    return parts


def _blocks(answer: Answer) -> list[Block]:
    columns = [name for name in answer.columns if name != "training" or "scheme" not in answer.columns]
    columns = [name for name in columns if name != "corpus"]
    heads = [*(name.replace("_", " ") for name in columns), "seeds", "mean perplexity", "95 % interval"]
    heads += ["above the lowest", "interval of the difference", "verdict"]
    rows = [
        [*(_cell(standing.setting[name]) for name in columns), *_compared(standing)] for standing in answer.standings
    ]
    words = answer.in_words()
    return [
        blocks.lead("S" + words[1:] if words.startswith("scheme") else words),
        blocks.table("Mean and interval of each setting", heads, rows),
        blocks.folded(
            "How this is computed",
            f"{METHOD} Perplexities are those of the {answer.chosen_on}, at the end of each run.",
        ),
    ]


def _cell(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else value_words(value)


def _compared(standing: Standing) -> Sequence[Any]:
    perplexity, ratio = standing.perplexity, standing.ratio
    missing = f"{standing.unfinished} not finished" if standing.unfinished else ""
    if perplexity is None:
        return [standing.seeds, None, None, None, None, blocks.chip(missing or "no result", BAD)]
    cells: list[Any] = [standing.seeds, f"{perplexity.mean:,.3f}", _interval(perplexity, "{:,.3f}")]
    if ratio is None:
        verdict = blocks.chip("lowest mean", GOOD) if not standing.paired else blocks.chip("no seed in common")
        return [*cells, None, None, _with(verdict, missing)]
    percent = Interval(
        100 * (ratio.mean - 1), *(None if end is None else 100 * (end - 1) for end in (ratio.low, ratio.high))
    )
    cells += [f"{percent.mean:+.1f}\u00a0%".replace("-", "−"), _interval(percent, "{:+.1f}\u00a0%", at=0.0)]
    return [*cells, _with(VERDICTS[standing.is_apart], missing)]


def _interval(interval: Interval, form: str, at: float | None = None) -> Block:
    ends = (interval.low, interval.high)
    words = " to ".join(form.format(end) for end in ends if end is not None).replace("-", "−")
    return blocks.interval(interval.mean, *ends, words or "one seed", at)


def _with(verdict: Block, missing: str) -> Block:
    return {**verdict, "chip": f"{verdict['chip']}; {missing}"} if missing else verdict
