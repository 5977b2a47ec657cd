"""A sweep, watched: a live table of its runs in a terminal, plain lines elsewhere; and the final table."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from unroll.base.live import GAP, fitting
from unroll.base.printable import one_line
from unroll.cli.moving import fields_in_lines, moving
from unroll.cli.screen import console, dim, duration, say, show, warn
from unroll.sweep import table
from unroll.sweep.answers import Standing, answers
from unroll.sweep.launchers import Begun, Failed, Lost, Noted, Progressed, Report, RunEnded, Scored
from unroll.sweep.sweep import Planned, Stage, in_words

if TYPE_CHECKING:
    from rich.console import RenderableType

    from unroll.sweep.plan import Fleet, Plan

REFRESH = 4  # times a second
PLAIN_SECONDS = 10.0  # between two plain lines of progress
ROUND, WIDE = 5, 80  # lines around the table of runs
COLUMNS_FROM = (46, 62, 72)  # widths from which there is room for one more column
OVER = ("finished", "stopped", "failed")


def watch(reports: Iterable[Report], quiet: bool, brief: bool = False) -> None:
    """Take every report as it comes, and show it in the way that suits the output: live, in lines, or not at all.

    In brief, lines do not say each fleet's beginning and each run's end.
    """
    if quiet:
        for report in _notes_once(reports):
            if words := _noted(report):
                warn(words)
    elif sys.stderr.isatty():
        _live(_notes_once(reports))
    else:
        _plain(_notes_once(reports), brief)


def _notes_once(reports: Iterable[Report]) -> Iterator[Report]:
    """The reports, each note once: fleets of one sweep often note the same."""
    said = set()
    for report in reports:
        if isinstance(report, Noted):
            if report.message in said:
                continue
            said.add(report.message)
        yield report


def _noted(report: Report) -> str | None:
    """What a report says beside the board, if anything."""
    return report.message if isinstance(report, Noted) else report.reason if isinstance(report, Lost) else None


@dataclass
class RunShown:
    """How a run stands."""

    batches: int
    state: str = "waiting"
    batch: int = 0
    perplexity: dict[str, Any] = field(default_factory=dict)
    lowest: float = math.inf


class Board:
    """All runs of a sweep, as they stand."""

    def __init__(self) -> None:
        self.runs: dict[str, RunShown] = {}
        self.fleets: dict[str, Fleet] = {}
        self.batch: dict[str, int] = {}  # of each fleet that has begun
        self.clocks: dict[str, Progressed] = {}
        self.began: float | None = None  # the clock, and the work done, when the first fleet began
        self.done_before = 0.0
        self.latest: str | None = None
        self.stage = ""

    def take(self, report: Report) -> None:
        """Learn from a report."""
        if isinstance(report, Planned):
            self._plan(report)
        elif isinstance(report, Stage):
            self.stage = report.words
        elif isinstance(report, Begun):
            self.latest, self.batch[report.fleet] = report.fleet, report.batch
            for name in self.fleets[report.fleet].runs:
                run = self.runs[name]
                run.state, run.batch = (run.state, run.batch) if run.state in OVER else ("training", report.batch)
            if self.began is None:
                self.began, self.done_before = time.perf_counter(), self.work_done()
        elif isinstance(report, Progressed):
            self.batch[report.fleet], self.clocks[report.fleet] = report.batch, report
            for name in self.fleets[report.fleet].runs:
                if self.runs[name].state == "training":
                    self.runs[name].batch = min(report.batch, self.runs[name].batches)
        elif isinstance(report, Scored):
            run = self.runs[report.run]
            run.perplexity = report.metrics["perplexity"]
            perplexity = next(iter(run.perplexity.values()))  # the scheme's procedure comes first
            run.lowest = min(run.lowest, math.inf if perplexity is None else perplexity)
        elif isinstance(report, RunEnded):
            self.runs[report.run].state, self.runs[report.run].batch = report.status["state"], report.status["batch"]
        elif isinstance(report, Failed):
            for name in report.runs:
                self.runs[name].state = "failed"
        elif isinstance(report, Lost):
            for run in (self.runs[name] for name in self.fleets[report.fleet].runs):
                run.state = run.state if run.state in OVER else "waiting"

    def _plan(self, report: Planned) -> None:
        self.fleets = {fleet.name: fleet for fleet in report.plan.fleets}
        if self.runs.keys() - {training.name for training in report.trainings}:  # other runs: a stage of a pilot
            self.runs, self.batch, self.clocks, self.began = {}, {}, {}, None
        for training in report.trainings:
            run = self.runs.setdefault(training.name, RunShown(training.experiment.batches))
            if run.batches != training.experiment.batches and training.name not in report.ended:
                run.batches, run.state = training.experiment.batches, "waiting"  # it gets longer
                self.began = None
            if training.name in report.plan.refused:
                run.state = "failed"
            elif training.name in report.ended and run.state not in OVER:
                run.state = report.ended[training.name]
                run.batch = run.batches if run.state == "finished" else run.batch

    def count(self, fleet: str) -> str:
        """Which of the fleets that are left this is: their names are those of the whole plan."""
        return f"{list(self.fleets).index(fleet) + 1} of {len(self.fleets)}"

    def work_done(self) -> float:
        """The share of the sweep's work that is done, by multiplications."""
        total = sum(fleet.work for fleet in self.fleets.values()) or 1.0
        done = 0.0
        for fleet in self.fleets.values():
            runs = [self.runs[name] for name in fleet.runs]
            share = sum(1.0 if r.state in OVER else r.batch / r.batches for r in runs) / len(runs)
            done += fleet.work * share
        return done / total

    def left(self) -> str:
        """The time left, at the pace of this session."""
        done = self.work_done()
        if self.began is None or done <= self.done_before:
            return ""
        each = (time.perf_counter() - self.began) / (done - self.done_before)
        return f"{duration(each * (1 - done))} left"

    def pace(self) -> str:
        """The time for a batch of one run, in the fleet that reported last."""
        clock = self.clocks.get(self.latest or "")
        if clock is None or not clock.batch:
            return ""
        M = len(self.fleets[clock.fleet].runs)
        share = clock.evaluating / max(clock.seconds * M + clock.evaluating, 1e-9)
        return f"{1000 * clock.seconds / clock.batch:.3g} ms a run-batch   evaluation {share:.0%} of the time"

    def summary(self) -> str:
        """How many runs are in each state."""
        counts = Counter(run.state for run in self.runs.values())
        words = [f"{counts[state]} {state}" for state in ("training", "waiting", *OVER) if counts[state]]
        return f"{sum(counts[state] for state in OVER)} / {len(self.runs)} runs over: " + ", ".join(words)

    def shown(self, room: int) -> list[str]:
        """The runs to show: all in order where they fit; else those that train, then the last to end, then the next."""
        if len(self.runs) <= room:
            return list(self.runs)
        now = list(self.fleets[self.latest].runs) if self.latest in self.fleets else []
        others = [name for name in self.runs if name not in set(now)]
        others.sort(
            key=lambda name: ("stopped", "failed", "training", "finished", "waiting").index(self.runs[name].state)
        )
        return (now + others)[: max(room - 1, 1)]

    def render(self, width: int, height: int) -> RenderableType:
        """The board, no taller than the terminal."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        names = self.shown(max(height - ROUND - (width < WIDE) - len(wrap(self.stage, width)), 1))
        short = dict(zip(self.runs, shortened(list(self.runs)), strict=True))
        grid = Table(box=None, padding=(0, 2, 0, 0), header_style=dim(), width=min(width, 120))
        grid.add_column("run", no_wrap=True, overflow="ellipsis", ratio=1)
        # A narrow terminal has room for the first columns, after the run's name.
        columns = ("batch", "perplexity", "lowest", "")[: 1 + sum(width >= least for least in COLUMNS_FROM)]
        for title in columns:
            grid.add_column(title, justify="right" if title else "left", no_wrap=True, overflow="ellipsis")
        for name in names:
            run = self.runs[name]
            colour = {"training": "cyan", "stopped": "yellow", "failed": "red", "waiting": dim()}.get(run.state, "")
            score = " / ".join("∞" if v is None else f"{v:,.3f}" for v in run.perplexity.values())
            lowest = f"{run.lowest:,.3f}" if math.isfinite(run.lowest) else ""
            batch = f"{run.batch:,} / {run.batches:,}"
            cells = (batch, score, lowest, Text(run.state, colour))
            grid.add_row(one_line(short[name]), *cells[: len(columns)])
        parts: list[RenderableType] = [grid]
        if len(names) < len(self.runs):
            parts.append(Text(f"… and {len(self.runs) - len(names)} runs more", dim()))
        done = self.work_done()
        bar = Table.grid(padding=(0, 2))
        length = min(30, width // 4)
        fleet = f"fleet {self.count(self.latest)}" if self.latest else "starting"
        said = fitting(GAP.join(filter(None, (f"{done:.0%}", self.left(), fleet))), width - length - 2)
        bar.add_row(ProgressBar(total=1.0, completed=done, width=length), said)
        words = fields_in_lines([*wrap(self.summary(), width), *self.pace().split(GAP)], width, 3)
        words = [*wrap(self.stage, width), *words]
        return Group(*parts, bar, *map(Text, words))


def shortened(names: Sequence[str]) -> list[str]:
    """Names without the words that all of them share."""
    split = [name.split("-") for name in names]
    shared = set.intersection(*map(set, split)) if split else set()
    short = ["-".join(word for word in words if word not in shared) for words in split]
    return short if len(set(short)) == len(names) and all(short) else list(names)


def _live(reports: Iterable[Report]) -> None:
    from rich.text import Text

    screen, board, drawn = console(), Board(), 0.0
    with moving(screen, lambda: board.render(screen.width, screen.height)) as draw:
        for report in reports:
            board.take(report)
            if words := _noted(report):
                screen.print(Text.assemble(("note: ", "yellow"), one_line(words)))
            if time.perf_counter() - drawn > 1 / REFRESH:
                draw()
                drawn = time.perf_counter()
        draw()


def _plain(reports: Iterable[Report], brief: bool = False) -> None:
    board, printed = Board(), time.perf_counter()
    for report in reports:
        board.take(report)
        if words := _noted(report):
            warn(words)
        elif isinstance(report, Stage):
            say(report.words)
        elif brief and (isinstance(report, Begun) or (isinstance(report, RunEnded) and _ended_well(report))):
            continue
        elif isinstance(report, Begun):
            runs = len(board.fleets[report.fleet].runs)
            after = f" after batch {report.batch:,}" if report.batch else ""
            together = "1 run" if runs == 1 else f"{runs} runs side by side"
            say(f"fleet {board.count(report.fleet)}: {together}{after}")
        elif isinstance(report, RunEnded):
            run = board.runs[report.run]
            score = "   ".join(f"{procedure} {value:,.3f}" for procedure, value in run.perplexity.items() if value)
            early = f"   {report.status['reason']}" if run.state == "finished" and "reason" in report.status else ""
            say(f"{report.run}: {run.state} after {run.batch:,} batches{early}   {score}   ({board.summary()})")
        elif isinstance(report, Failed):
            for name in report.runs:
                say(f"{name}: failed. {report.reason}")
        elif isinstance(report, Progressed) and time.perf_counter() - printed > PLAIN_SECONDS:
            say(f"batch {report.batch:,}   {board.pace()}   {board.left()}   ({board.summary()})")
            printed = time.perf_counter()


def _ended_well(report: RunEnded) -> bool:
    return bool(report.status["state"] == "finished")


# --- the end ------------------------------------------------------------------------------------------------------


def show_fleets(plan: Plan, times: Mapping[str, str]) -> None:
    """The runs of each fleet, with its time in words where that is known; and what cannot be trained."""
    for fleet in plan.fleets:
        about = f", about {times[fleet.name]}" if fleet.name in times else ""
        show()
        show(f"fleet {fleet.name}: {in_words(fleet)}{about}")
        for name in fleet.runs:
            show(f"  {name}")
    for name, reason in plan.refused.items():
        show()
        show(f"cannot be trained: {name}")
        show(f"  {reason}")


def show_failures(failures: Mapping[str, Mapping[str, Any]], runs: int | None = None) -> None:
    """The runs that could not be trained, reason by reason; out of how many, where that is known."""
    say(f"{len(failures)}{f' of {runs}' if runs else ''} runs could not be trained:")
    for reason in dict.fromkeys(failure["reason"] for failure in failures.values()):
        names = [name for name, failure in failures.items() if failure["reason"] == reason]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        say(f"  {', '.join(names[:3])}{more}: {reason}")


def print_table(rows: Sequence[table.Row]) -> None:
    """The settings that vary, and the results; the lowest run of each corpus is marked."""
    varied = [name for name in table.COLUMNS[1:] if name not in table.RESULTS and len({r[name] for r in rows}) > 1]
    varied = [name for name in varied if name != "training" or any(row["scheme"] is None for row in rows)]
    columns = [*varied, "perplexity", "lowest", "lowest_batch", "state"]
    best = [id(row) for row in table.best(rows).values()]
    content = [[name.replace("_", " ") for name in columns]]
    content += [[_shown(row[name]) for name in columns] for row in rows]
    widths = [max(len(line[i]) for line in content) for i in range(len(columns))]
    marks = ["", *(table.best_mark(row) if id(row) in best else "" for row in rows)]
    for line, mark in zip(content, marks, strict=True):
        show("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) + mark)


def print_answers(rows: Sequence[table.Row]) -> None:
    """For each corpus: the mean of each setting over its seeds, and whether they tell the best from the others."""
    for answer in answers(rows):
        if answer.best.seeds > 1:
            show()
            show(f"Means over seeds, of the {answer.chosen_on}:")
            columns = [name for name in answer.columns if name != "training" or "scheme" not in answer.columns]
            columns = [name for name in columns if name != "corpus"]
            content = [[*(name.replace("_", " ") for name in columns), "seeds", "mean", "95 % interval", "to the best"]]
            content += [
                [*(_shown(standing.setting[name]) for name in columns), str(standing.seeds), *_compared(standing)]
                for standing in answer.standings
            ]
            widths = [max(len(line[i]) for line in content) for i in range(len(content[0]))]
            for line in content:
                show("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
        show(f"{answer.corpus}: {answer.in_words()}" if len({row["corpus"] for row in rows}) > 1 else answer.in_words())


def _compared(standing: Standing) -> tuple[str, str, str]:
    """A setting's mean, its interval, and its difference from the best, in words."""
    perplexity, ratio = standing.perplexity, standing.ratio
    if perplexity is None:
        return "–", "–", f"{standing.unfinished} not finished"
    interval = "–" if perplexity.low is None else f"{perplexity.low:,.3f} – {perplexity.high:,.3f}"
    left_out = f", {standing.unfinished} not finished" if standing.unfinished else ""
    if ratio is None:
        return f"{perplexity.mean:,.3f}", interval, f"best{left_out}" if not standing.paired else f"–{left_out}"
    verdict = {True: "higher", False: "not told apart", None: "one seed in common"}[standing.is_apart]
    return f"{perplexity.mean:,.3f}", interval, f"{ratio.mean - 1:+.1%} {verdict}{left_out}"


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.4f}" if value >= 1 else f"{value:.6g}"
    return f"{value:,}" if type(value) is int else one_line(str(value))
