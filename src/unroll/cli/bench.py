"""`unroll bench`: this machine, against the peers."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unroll.base.errors import ConfigurationError, counted
from unroll.cli.screen import console, on_a_terminal, say, warn

if TYPE_CHECKING:
    from rich.table import Table

    from unroll.studies.benchmark.contestants import ContestantBuilder
    from unroll.studies.benchmark.heats import Timing
    from unroll.studies.benchmark.plan import Choice
    from unroll.studies.benchmark.record import Record

NARROWEST = 100  # columns that a table needs, where no terminal says how many there are


def bench(
    architectures: Annotated[
        str, typer.Option(help="Layers x hidden, with commas [1x128,1x512,2x128,2x512].", show_default=False)
    ] = "",
    procedures: Annotated[
        str, typer.Option(help="Training procedures [multi-loss,single-loss,conditional].", show_default=False)
    ] = "",
    contestants: Annotated[
        str,
        typer.Option(
            help="unroll, unroll-fleet, lstm-eager, lstm-graphed, cudnn-half, flashrnn [all that run here].",
            show_default=False,
        ),
    ] = "",
    only: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only rows like this: '1x512 multi*fleet'.", show_default=False)
    ] = "",
    fleet: Annotated[
        str,
        typer.Option(metavar="N,N", help="Runs side by side [by device and architecture].", show_default=False),
    ] = "",
    precision: Annotated[
        str,
        typer.Option(
            help="Precisions of Unroll's rows [CUDA: bfloat16,tf32,float32; CPU: float32].", show_default=False
        ),
    ] = "",
    scaling: Annotated[
        bool, typer.Option("--scaling", help="Instead: time against M, γ, k2 and r, one varied at a time.")
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Instead: where the first chosen contestant's time goes.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter and fewer blocks: rough numbers.")] = False,
    seconds: Annotated[
        float | None, typer.Option(min=0.001, max=600, help="Length of one block [0.12, CPU 0.3].", show_default=False)
    ] = None,
    blocks: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Blocks timed for each row [5, CPU 3].", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    kernel: Annotated[str, typer.Option(help="Kernel of Unroll's rows.")] = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads, for all contestants [torch's choice].", show_default=False)
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the record: every repetition.", show_default=False)
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: .png, .svg or .pdf.", show_default=False)
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Measure nothing: show and draw a record again.", show_default=False
        ),
    ] = None,
) -> None:
    """Time whole training steps of Unroll and of what users would write without it, side by side in one process.

    Four architectures (r layers of γ LSTM units) under three training procedures, 64 rows, k2 = 100, k1 = 40, dense
    1024, 85 symbols; forward, backward and Adam. A fleet's time is that of a step divided by its runs: ms a run-batch.
    Peers are torch.nn.LSTM as most write it, the same as a CUDA graph in TF32, the fastest use of cuDNN that we know,
    and flashrnn where it is installed. The floor is what the matrix products alone would take on this machine.

    \b
    unroll bench --quick                                     rough, first
    unroll bench --json bench.json --picture bench.png       all of it: minutes
    unroll bench --only '1x512 multi' --fleet 8,16           a part of it
    unroll bench --scaling --picture scaling.png             against M, γ, k2 and r
    unroll bench --profile --only '1x512 multi*fleet'        where the time goes
    """
    _refuse_bad_files(json, picture, from_, scaling and profile)
    if from_ is not None:
        _again(from_, json, picture)
        return
    import torch

    from unroll.base import plugins
    from unroll.engines import devices
    from unroll.studies.benchmark import heats, plan
    from unroll.studies.benchmark.contestants import ContestantBuilder
    from unroll.studies.benchmark.shapes import random_corpus

    choice = plan.Choice(
        _words(architectures), _words(procedures), _words(contestants), _words(precision), _numbers(fleet), only
    )
    wrong = None if kernel == "auto" else plugins.problem("kernels", kernel, "kernel")
    if wrong:
        raise ConfigurationError(wrong)
    if threads:
        devices.require_threads(threads)
        torch.set_num_threads(threads)
    chosen_device = devices.find(_resolved(device))
    choice, notes = _allowed(choice, devices.kind(chosen_device))
    for note in notes:
        warn(note)
    timing = (heats.QUICK_TIMING if quick else heats.TIMING)[devices.kind(chosen_device)]
    timing = replace(timing, seconds=seconds or timing.seconds, blocks=blocks or timing.blocks)
    builder = ContestantBuilder(random_corpus(), chosen_device, kernel)
    if profile:
        _profile(choice, builder, json)
    else:
        _measure(choice, builder, timing, notes, scaling, json, picture)


def _measure(
    choice: Choice,
    builder: ContestantBuilder,
    timing: Timing,
    notes: list[str],
    scaling: bool,
    json: Path | None,
    picture: Path | None,
) -> None:
    from unroll.engines import devices
    from unroll.studies.benchmark import measurement, plan, record
    from unroll.studies.benchmark.verdicts import line

    kind = devices.kind(builder.device)
    groups = (plan.scaling if scaling else plan.comparison)(choice, kind)
    settings = {"choice": asdict(choice), "kernel": builder.kernel}
    if scaling:
        settings |= plan.scaling_settings(choice, kind)
    rows = counted(sum(map(len, groups)), "row")
    blocks = counted(timing.blocks, "block")
    say(f"{rows}; {blocks} of about {timing.seconds:g} s for each.")
    measured = measurement.measure(
        "scaling" if scaling else "comparison",
        groups,
        builder.build,
        builder.device,
        timing,
        settings,
        notes,
        tell=lambda row: say(line(row)),
        keep=lambda so_far: None if json is None else record.write(so_far, json),
    )
    _show(measured, picture)


def _profile(choice: Choice, builder: ContestantBuilder, json: Path | None) -> None:
    from unroll.engines import devices
    from unroll.studies.benchmark import machine, plan, profiling, record

    entry = plan.comparison(choice, devices.kind(builder.device))[0][0]
    say(f"profiling {entry.label}")
    content = profiling.run(entry, builder.build(entry), builder.device, machine.facts(builder.device))
    if json is not None:
        record.write(content, json)
    _print(profiling.table(content))


def _again(source: Path, json: Path | None, picture: Path | None) -> None:
    from unroll.studies.benchmark import profiling, record

    content = record.load(source)
    if content.get("mode") == "profile":
        if picture is not None:
            raise ConfigurationError("A profile has no picture: drop --picture.")
        _print(profiling.table(profiling.read(content, source)))
        return
    _show(record.read(content, source), picture)
    if json is not None:
        record.write(record.read(content, source), json)


def _show(measured: Record, picture: Path | None) -> None:
    from unroll.studies.benchmark import picture as pictures
    from unroll.studies.benchmark import table

    _print(table.table(measured))
    for problem in table.problems(measured):
        warn(problem)
    if picture is not None:
        pictures.save(measured, picture)


def _print(shown: Table) -> None:
    # A pipe has no width to fit into, so nothing is cut off.
    console(error=False, width=None if on_a_terminal() else NARROWEST + 60).print(shown)


def _allowed(choice: Choice, kind: str) -> tuple[Choice, list[str]]:
    """Leave out the precisions that experiments refuse; an error where that leaves none."""
    from unroll.studies.benchmark import plan

    wanted = choice.precisions or plan.PRECISIONS[kind]
    refused = plan.refused(wanted)
    kept = tuple(p for p in wanted if p not in refused)
    if not kept:
        raise ConfigurationError(*refused.values())
    return replace(choice, precisions=kept), [f"left out: {why}" for why in refused.values()]


def _resolved(device: str) -> str:
    from unroll.engines import devices

    return devices.best() if device == "auto" else device


def _refuse_bad_files(json: Path | None, picture: Path | None, source: Path | None, two_modes: bool) -> None:
    """Refuse before anything is measured: minutes of it should not end in a folder that does not exist."""
    from unroll.studies.benchmark.picture import SUFFIXES

    wrong = ["--scaling and --profile are two measurements: choose one."] if two_modes else []
    for option, path in (("--json", json), ("--picture", picture)):
        if path is not None and not path.absolute().parent.is_dir():
            wrong.append(f"{option} {path}: there is no folder {path.absolute().parent}. Make it, or name another.")
        elif path is not None and path.is_dir():
            wrong.append(f"{option} {path} is a folder. Name a file in it.")
    if json is not None and json.suffix != ".json":  # a record is written over, and must never be a user's text
        wrong.append(f"--json must end in .json. Got {json}.")
    if picture is not None and picture.suffix not in SUFFIXES:
        wrong.append(f"--picture must end in {', '.join(SUFFIXES)}. Got {picture}.")
    if source is not None and source.is_dir():
        wrong.append(f"--from {source} is a folder. Name the record in it.")
    if wrong:
        raise ConfigurationError(*wrong)


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(word) for word in _words(text)))
    except ValueError:
        raise ConfigurationError(f"--fleet takes numbers with commas, as in 21,28. Got {text!r}.") from None
