"""Every launcher: the same run folders and reports as `local`; what fails is reported, and the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest
import sweeping
from helpers import every_plugin
from sweeping import small

from unroll import Corpus
from unroll.base.errors import ConfigurationError
from unroll.corpus.open_corpora import Library
from unroll.experiment.experiment import Experiment
from unroll.sweep import launchers
from unroll.sweep.launchers import Begun, Failed, Job, Report, RunEnded, Scored


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A corpus in a file: a launcher may open it elsewhere."""
    path = tmp_path / "text.txt"
    path.write_text("abcdefgh " * 40)
    return path


def jobs(folder: Path, text: Path) -> list[Job]:
    """Three fleets: of two runs, of one, and of one that cannot be trained."""
    described = Corpus.open(str(text)).described_in
    fleets: list[list[Experiment]] = [
        [described(e) for e in small(corpus=str(text), seed=[0, 1], kernel="stacked")],
        [described(e) for e in small(corpus=str(text), scheme=4, k1=9, kernel="stacked")],
        [described(e) for e in small(corpus=str(text), k2=300, kernel="stacked")],
    ]
    made = []
    for number, own in enumerate(fleets):
        names = tuple(f"text-{number}-{e.seed}" for e in own)
        made.append(Job(str(number), names, tuple(own), tuple(str(folder / "runs" / n) for n in names), 3))
    return made


def told(reports: list[Report]) -> dict[str, list[tuple[str, object]]]:
    """What must not depend on where it ran: for each fleet, in order, without clocks."""
    found: dict[str, list[tuple[str, object]]] = {}
    for report in reports:
        facts: object = None
        if isinstance(report, Begun):
            facts = report.batch
        elif isinstance(report, Scored):
            facts = report.run, {k: v for k, v in report.metrics.items() if k != "seconds"}
        elif isinstance(report, RunEnded):
            facts = report.run, report.status["state"], report.status["batch"]
        elif isinstance(report, Failed):
            facts = report.runs, report.reason
        if facts is not None:
            found.setdefault(report.fleet, []).append((type(report).__name__, facts))
    return found


@every_plugin("launchers")
def test_a_launcher_makes_the_same_records_as_local(name: str, tmp_path: Path, text: Path) -> None:
    ours = told(list(launchers.on_trial(name).run(jobs(tmp_path / "ours", text), Library())))
    theirs = told(list(launchers.on_trial("local").run(jobs(tmp_path / "theirs", text), Library())))
    assert ours == theirs
    kinds = [kind for own in ours.values() for kind, _ in own]
    assert (kinds.count("RunEnded"), kinds.count("Failed")) == (3, 1)
    assert sweeping.result(tmp_path / "ours") == sweeping.result(tmp_path / "theirs")


@every_plugin("launchers")
def test_a_launcher_goes_on_with_what_was_begun_and_leaves_what_has_ended(
    name: str, tmp_path: Path, text: Path
) -> None:
    todo = jobs(tmp_path / "ours", text)[:2]
    events = launchers.on_trial("local").run(todo, Library())
    while not (isinstance(report := next(events), Scored) and report.metrics["batch"] == 7):
        pass
    events.close()
    reports = list(launchers.on_trial(name).run(todo, Library()))
    assert {report.fleet: report.batch for report in reports if isinstance(report, Begun)} == {"0": 7, "1": 0}
    list(launchers.on_trial("local").run(jobs(tmp_path / "theirs", text)[:2], Library()))
    assert sweeping.result(tmp_path / "ours") == sweeping.result(tmp_path / "theirs")


def test_an_unknown_launcher_is_named_with_what_there_is() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean local"):
        launchers.load("locl")
