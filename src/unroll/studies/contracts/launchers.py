"""Rules of launchers. They train some tiny runs in a folder of their own, which is deleted after it."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from unroll.corpus.open_corpora import Library, open_corpus
from unroll.engines import devices
from unroll.experiment.experiment import Experiment
from unroll.runs.folder import RunFolder
from unroll.studies.contracts import cases, require
from unroll.sweep import launchers
from unroll.sweep.launchers import Failed, Job, Report, RunEnded, Scored

SEEDS = ((0, 1), (2,))  # of the runs of each fleet


def it_trains_what_local_trains(name: str) -> None:
    """Every fleet is trained into the folders that its job names: weights and metrics are those of `local`."""
    with _folder() as folder:
        for launcher, own in ((name, "own"), ("local", "local")):
            _require_no_failure(list(launchers.on_trial(launcher).run(_jobs(folder, own), Library())))
        _require_same(folder)


def its_reports_are_those_of_local(name: str) -> None:
    """Each fleet's evaluations and ends come out, in their order, with the numbers of `local`."""
    with _folder() as folder:
        said = [
            _said(launchers.on_trial(n).run(_jobs(folder, own), Library())) for n, own in ((name, "a"), ("local", "b"))
        ]
    require(said[0] == said[1], f"It reported {said[0]}; local reports {said[1]}.")


def it_goes_on_with_what_was_begun(name: str) -> None:
    """A run that was left goes on from its checkpoint and ends with the bits of one that was not."""
    with _folder() as folder:
        with closing(_generator(launchers.on_trial("local").run(_jobs(folder, "own")[:1], Library()))) as reports:
            for report in reports:
                if isinstance(report, Scored) and report.metrics["batch"] >= 3:
                    break
        _require_no_failure(list(launchers.on_trial(name).run(_jobs(folder, "own"), Library())))
        _require_no_failure(list(launchers.on_trial("local").run(_jobs(folder, "local"), Library())))
        _require_same(folder)


def what_has_ended_is_left_as_it_is(name: str) -> None:
    """Launched again, runs that have ended are not trained again."""
    with _folder() as folder:
        jobs = _jobs(folder, "own")
        list(launchers.on_trial("local").run(jobs, Library()))
        before = {out: (Path(out) / "weights.safetensors").stat().st_mtime_ns for job in jobs for out in job.outs}
        _require_no_failure(list(launchers.on_trial(name).run(jobs, Library())))
        after = {out: (Path(out) / "weights.safetensors").stat().st_mtime_ns for out in before}
        require(before == after, "It wrote the weights of a run that had ended.")


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text.txt").write_text("abcdefgh " * 40)
        yield folder


def _generator(reports: Iterator[Report]) -> Generator[Report, None, None]:
    yield from reports


def _jobs(folder: Path, place: str) -> list[Job]:
    jobs = []
    for number, seeds in enumerate(SEEDS):
        asked = [cases.experiment(corpus=str(folder / "text.txt"), seed=seed, kernel="stacked") for seed in seeds]
        runs: list[Experiment] = [devices.resolve(open_corpus(one).described_in(one)) for one in asked]
        names = tuple(f"run-{seed}" for seed in seeds)
        outs = tuple(str(folder / place / name) for name in names)
        jobs.append(Job(str(number), names, tuple(runs), outs, 2))
    return jobs


def _require_no_failure(reports: list[Report]) -> None:
    failed = [report for report in reports if isinstance(report, Failed)]
    require(not failed, f"It could not train: {failed[0].reason if failed else ''}")


def _require_same(folder: Path) -> None:
    """Weights and scores of the runs under own and under local are equal."""
    for seed in (seed for seeds in SEEDS for seed in seeds):
        own, local = (RunFolder(folder / place / f"run-{seed}") for place in ("own", "local"))
        require(own.has_ended(), f"Run {seed} has not ended.")
        (mine, _), (truth, _) = own.weights(), local.weights()
        wrong = [key for key, value in truth.items() if not bool((mine[key] == value).all())]
        require(not wrong, f"Weights of run {seed} differ: {', '.join(wrong)}.")
        scores = [[(line["batch"], line["perplexity"]) for line in run.metrics] for run in (own, local)]
        require(scores[0] == scores[1], f"Run {seed} was scored {scores[0]}; by local {scores[1]}.")


def _said(reports: Iterator[Report]) -> dict[str, list[object]]:
    """What does not depend on clocks: for each fleet, in order."""
    said: dict[str, list[object]] = {}
    for report in reports:
        if isinstance(report, Scored):
            said.setdefault(report.fleet, []).append(
                (report.run, *(report.metrics[k] for k in ("batch", "perplexity")))
            )
        elif isinstance(report, RunEnded):
            said.setdefault(report.fleet, []).append((report.run, report.status["state"], report.status["batch"]))
    return said
