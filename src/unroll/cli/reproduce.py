"""`unroll reproduce`: the paper's experiments, all or by figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unroll.base.errors import ConfigurationError, Interrupted, did_you_mean
from unroll.cli import options
from unroll.cli.options import option
from unroll.cli.screen import duration, print_json, say, shell_word, show, warn
from unroll.studies.paper.figures import FIGURES

if TYPE_CHECKING:
    from unroll.studies.paper.records import Time
    from unroll.studies.paper.reproduction import Reproduction


def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(metavar="FIGURE", help=f"{', '.join(FIGURES)}; or all [all].", show_default=False),
    ] = None,
    data: Annotated[Path | None, option("A folder with english.txt, finnish.txt, linux.txt and music.txt.")] = None,
    out: Annotated[Path | None, option("The folder of the records. The same command goes on there.")] = None,
    seeds: Annotated[int, option("Seeds of each training, from 0 on [1].")] = 1,
    scale: Annotated[float, option("Below 1, the same thing small: 0.005 takes minutes on a CPU [1].")] = 1.0,
    precision: Annotated[str, option(options.help_for("precision"))] = "float32",
    most: Annotated[int | None, option("Runs that may train side by side [measured; below scale 1: 3].")] = None,
    keep_weights: Annotated[bool, option("Keep run folders, with weights, in OUT/runs.", "--keep-weights")] = False,
    plan: Annotated[bool, option("Print runs, fleets, time and memory, and stop.", "--plan")] = False,
    save_every: options.SaveEvery = None,
    quiet: options.Quiet = False,
    json: Annotated[bool, option("At the end print one JSON object.", "--json")] = False,
) -> None:
    """Do the paper's experiments again: each distinct training once, many side by side, resumable at any point.

    \b
    unroll reproduce all --data data --out paper                      222 trainings, then our extras
    unroll reproduce schemes k2 --seeds 3 --data data --out paper     more seeds of two figures
    unroll reproduce all --scale 0.005 --data data --out small        the same grid with tiny models
    unroll reproduce all --plan --data data --out paper               what would be done, and how long it takes

    OUT/records holds one file per figure, and is all that is needed to go on, or to draw everything again.
    """
    wrong = _problems(figures or [], data, out)
    if wrong:
        raise ConfigurationError(*wrong)
    options.require_save_every(save_every)
    chosen = list(FIGURES) if not figures or "all" in figures else figures

    from unroll.studies.paper.reproduction import Reproduction

    assert data is not None
    assert out is not None
    asked = Reproduction(chosen, data, out, seeds, scale, precision, most, keep_weights)
    for note in dict.fromkeys(note for corpus in asked.corpora.values() for note in corpus.notes):
        warn(note)
    if plan:
        _print_plan(asked, json)
    else:
        _run(asked, save_every, quiet, json)


def _problems(figures: list[str], data: Path | None, out: Path | None) -> list[str]:
    known = [*FIGURES, "all"]
    wrong = [
        f"{name!r} is no figure: {', '.join(known)}.{did_you_mean(name, known)}"
        for name in figures
        if name not in known
    ]
    if data is None:
        wrong.append("Say where the corpora are: --data FOLDER, with english.txt, finnish.txt, linux.txt, music.txt.")
    if out is None:
        wrong.append("Say where the records go: --out FOLDER.")
    return wrong


def _print_plan(asked: Reproduction, json: bool) -> None:
    from unroll.cli.sweep_display import show_fleets
    from unroll.studies.paper.planning import estimate

    say("Planning: a few batches of each kind of fleet are timed. The real run does so anew.")
    plan, trainings = asked.plan()
    seconds = estimate(plan, trainings, asked.library)
    finished = len(asked.wanted) - len(asked.left)
    largest = max((fleet.bytes for fleet in plan.fleets), default=0)
    if json:
        fleets = [
            {"fleet": fleet.name, "runs": list(fleet.runs), "bytes": fleet.bytes, "seconds": seconds[fleet.name]}
            for fleet in plan.fleets
        ]
        total = {"runs": len(asked.left), "finished": finished, "seconds": sum(seconds.values()), "bytes": largest}
        print_json(total | {"fleets": fleets, "refused": dict(plan.refused)})
        return
    curves = sum(len(FIGURES[name]) * asked.seeds[name] for name in asked.figures)
    show(f"{', '.join(asked.figures)}: {curves} curves, {len(asked.wanted)} trainings, {finished} of them finished")
    took = duration(sum(seconds.values()))
    most = largest / 1e9
    show(
        f"{len(asked.left)} runs in {len(plan.fleets)} fleets: about {took} of training, evaluation not counted; "
        f"at most {most:,.1f} GB at a time"
    )
    show_fleets(plan, {name: f"{duration(each)} of training" for name, each in seconds.items()})


def _run(asked: Reproduction, save_every: int | None, quiet: bool, json: bool) -> None:
    from dataclasses import asdict

    from unroll.cli.sweep_display import show_failures, watch

    def timed(time: Time) -> None:
        if not quiet:
            tokens = ", ".join(f"{name.replace('_', ' ')} {ms:.3g}" for name, ms in time.sample_ms.items())
            say(
                f"r={time.layers} γ={time.hidden} scheme {time.scheme} k1={time.k1}, {time.fleet} side by side: "
                f"{time.batch_ms:.4g} ms a batch" + (f"; a token: {tokens}" if tokens else "")
            )

    name = shell_word(asked.folder.path)
    try:
        watch(asked.run(timed, save_every), quiet)
    except Interrupted:
        say(f"Saved in {name}. The same command goes on.")
        raise
    statuses = asked.status()
    failures = asked.folder.failures
    trained, evaluated = asked.seconds()
    if json:
        figures: dict[str, Any] = {figure: asdict(status) for figure, status in statuses.items()}
        seconds = {"training": trained, "evaluation": evaluated}
        print_json({"folder": str(asked.folder.path), "figures": figures, "seconds": seconds, "failures": failures})
    elif not quiet:
        for figure, status in statuses.items():
            stopped = f", {status.stopped} stopped" if status.stopped else ""
            curves = f"{status.finished} of {status.curves} curves finished{stopped}" if status.curves else "measured"
            show(f"{figure}: {curves}")
        show(f"{duration(trained)} of training and {duration(evaluated)} of evaluation, by the records")
    if failures:
        show_failures(failures)
        raise typer.Exit(1)
