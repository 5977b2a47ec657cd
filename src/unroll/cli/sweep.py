"""`unroll sweep`: a grid of runs, new or resumed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unroll.base.errors import ConfigurationError, Interrupted, counted
from unroll.cli import options
from unroll.cli.options import option
from unroll.cli.screen import duration, print_json, say, shell_word, show, warn
from unroll.experiment import config_file, grids, spelled
from unroll.experiment.config_file import Written
from unroll.experiment.experiment import Experiment, scheme_options
from unroll.experiment.scheme import Scheme
from unroll.sweep import launchers
from unroll.training import trackers

if TYPE_CHECKING:
    from unroll.corpus.open_corpora import Library
    from unroll.sweep.folder import SweepFolder
    from unroll.sweep.forecast import Forecast

LARGE_SHARE = 0.3  # of a sweep's time


def sweep(
    corpora: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CORPUS",
            help="Text files, folders, MIDI, or names that `unroll data list` shows.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, option("The sweep's folder.")] = None,
    resume: Annotated[Path | None, option("Go on with this sweep. The same command as before does so too.")] = None,
    status: Annotated[Path | None, option("Show how this sweep stands, also while it is at work, and stop.")] = None,
    config: options.Config = None,
    plan: Annotated[bool, option("Print which runs would train side by side, and stop.", "--plan")] = False,
    scheme: Annotated[str | None, option(options.SCHEME, metavar=options.LIST)] = None,
    train: Annotated[list[str] | None, option(f"{options.PROCEDURE} Again for more.", metavar="PROCEDURE")] = None,
    seeds: Annotated[int | None, option("Number of seeds of each combination, from seed 0 on [1].")] = None,
    preset: options.Preset = "paper",
    most: Annotated[int | None, option("Runs that may train side by side [measured].")] = None,
    launcher: Annotated[
        str, option("Where runs are trained: NAME[,key=value…]; processes trains one fleet per core [local].")
    ] = "local",
    address: Annotated[str | None, option("The cluster of the launcher ray: auto, or HOST:PORT.")] = None,
    save_every: options.SaveEvery = None,
    track: options.Track = None,
    quiet: options.Quiet = False,
    json: Annotated[bool, option("At the end print one JSON object.", "--json")] = False,
    **given: Any,
) -> None:
    """Train every combination of settings, as many runs side by side as this machine does fastest.

    \b
    unroll sweep book.txt --scheme 1,2,3,4 --k1 20,60,100 --seeds 3 --out sweeps/book
    unroll sweep a.txt b.txt --hidden 128,512 --dropout 0,0.25 --out sweeps/size
    unroll sweep --resume sweeps/book                        after Ctrl-C, a crash or a power cut
    unroll sweep --status sweeps/book                        how it stands, from any machine that sees the folder

    Options with A,B,… take several values, separated by commas. Schemes 1 and 3 share their training: it is done
    once and evaluated under both procedures. OUT/runs holds an ordinary run folder for each training, OUT/table.csv
    the final table. A run that diverges is a result; one that cannot be trained is recorded with the reason, and the
    others go on.
    """
    others = {name: value for name, value in locals().items() if name != "given"}
    said = {name: value for name, value in (others | given).items() if value is not None and value is not False}
    if status is not None:
        _show_status(status, said, json)
        return
    if address is not None:
        launcher = f"{launcher},address={address}"
    wrong = [problem for problem in (launchers.problem(launcher), _problem_of(out, resume, plan)) if problem]
    if most is not None and most < 1:
        wrong.append(f"most must be at least 1. Got {most}. Leave --most out to have it measured.")
    asked: list[Experiment] | None = None
    written: Written | None = None
    if resume is None:
        written = _collected(wrong, lambda: config_file.read(config)) if config is not None else None
        asked = _collected(wrong, lambda: _grid(said, wrong, written))
    elif (
        extra := set(said)
        - {"resume", "plan", "launcher", "address", "save_every", "track", "quiet", "json"}
        - ({"preset"} if preset == "paper" else set())
    ):
        names = ", ".join(sorted("CORPUS" if n == "corpora" else f"--{n.replace('_', '-')}" for n in extra))
        wrong.append(f"--resume needs nothing else: leave out {names}, which the sweep knows.")
    _collected(wrong, lambda: options.require_save_every(save_every))
    told = _collected(wrong, lambda: trackers.chosen(track or ())) or ()
    if wrong:
        raise ConfigurationError(*dict.fromkeys(wrong))

    from unroll.corpus.open_corpora import Library
    from unroll.sweep.folder import SweepFolder
    from unroll.sweep.sweep import describe

    library, path = Library(), resume or out
    folder = SweepFolder(path) if path else None
    if folder and asked is not None:
        folder.refuse_occupied()
    if asked is not None:
        one = asked[0]
        with options.with_another_text(written, corpora):
            asked = describe(asked, library)
        texts = [library.open(e) for e in asked]
        notes = [*(note for text in texts for note in text.notes), *options.notes_of_config(written, one, texts)]
        for note in dict.fromkeys(notes):
            warn(note)
    if plan:
        _print_plan(folder, library, asked, most, launcher, json)
    else:
        assert folder is not None
        _sweep(folder, library, asked, most, launcher, save_every, told, quiet, json)


def _show_status(path: Path, said: dict[str, Any], json: bool) -> None:
    """How a sweep stands; nothing is written, and nobody who trains is disturbed."""
    from unroll.cli.standing import print_standing
    from unroll.sweep.folder import SweepFolder
    from unroll.sweep.standing import standing

    extra = sorted(set(said) - {"status", "json", "preset", "launcher"})
    if extra or said["preset"] != "paper" or said["launcher"] != "local":
        raise ConfigurationError("--status needs nothing else but --json: leave out the rest.")
    print_standing(standing(SweepFolder(path)), json)


def _problem_of(out: Path | None, resume: Path | None, plan: bool) -> str | None:
    if out is None and resume is None and not plan:
        return "Give the sweep a folder: --out FOLDER; or go on with one: --resume FOLDER."
    return None


def _collected(wrong: list[str], make: Callable[[], Any]) -> Any:
    """What `make` makes, or None and its problems among the others."""
    try:
        return make()
    except ConfigurationError as error:
        wrong += error.problems
    return None


def _grid(said: dict[str, Any], wrong: list[str], written: Written | None) -> list[Experiment]:
    """The experiments that the options ask for, on top of what is written."""
    base = {**written.options("corpora" in said, said), "keep_optimiser": False} if written else {}
    corpora = said.get("corpora", [base.get("corpus", "")])
    if not all(corpora) and "corpora" not in said:
        wrong.append("Give a CORPUS: a text file, a folder, or a name (`unroll data list`); or --resume FOLDER.")
    if "seed" in said and "seeds" in said:
        wrong.append("--seeds N is seeds 0 to N − 1; --seed names them: drop one of the two.")
    if not 1 <= said.get("seeds", 1) <= grids.MOST:
        wrong.append(f"seeds must be between 1 and {grids.MOST:,}. Got {said['seeds']}.")
    kinds = {"scheme": int, **options.lists_of(Scheme), **options.lists_of(Experiment)}
    axes = {name: values for name in kinds if name in said and (values := _values(name, kinds[name], said, wrong))}
    choose = written.scheme if written else scheme_options
    schemes = _schemes(axes.pop("scheme", []), said.get("train", []), axes.pop("sample", []), choose, wrong)
    if 1 <= said.get("seeds", 0) <= grids.MOST:
        axes["seed"] = list(range(said["seeds"]))
    single = {name: value for name, value in options.said(said).items() if name not in kinds}
    base |= _collected(wrong, lambda: {**options.preset(said["preset"]), **options.preset_pace(said["preset"])}) or {}
    return grids.grid(**{**base, **single, **axes, "corpus": corpora, "scheme": schemes})


def _values(name: str, kind: type, said: dict[str, Any], wrong: list[str]) -> list[Any]:
    """`20,40` as values of a setting's type."""
    values = []
    parts = spelled.listed(said[name]) if name in options.with_keys() else said[name].split(",")
    for word in dict.fromkeys(part.strip() for part in parts):
        try:
            values.append(kind(word))
        except ValueError:
            noun = "integers" if kind is int else "numbers"
            wrong.append(
                f"--{name.replace('_', '-')} takes {noun}, separated by commas. Got {word!r} in {said[name]!r}."
            )
    return values


def _schemes(
    numbers: list[Any],
    procedures: list[Any],
    samples: list[Any],
    choose: Callable[..., dict[str, Any]],
    wrong: list[str],
) -> list[dict[str, Any]]:
    """What --scheme, or --train and --sample, say: each number, or each training with each sampling procedure."""
    schemes: list[dict[str, Any]] = []
    for words in itertools.product(numbers or [None], procedures or [None], samples or [None]):
        chosen = _collected(wrong, partial(choose, *words))
        schemes += [chosen] if chosen else []
    return schemes or [choose(None, None, None)]


def _print_plan(
    folder: SweepFolder | None,
    library: Library,
    asked: list[Experiment] | None,
    most: int | None,
    launcher: str,
    json: bool,
) -> None:
    """The plan that stands in the folder, or the one that would be made; nothing is written."""
    from unroll.cli.sweep_display import show_fleets
    from unroll.sweep.deduplicate import distinct
    from unroll.sweep.sweep import planned

    known = folder is not None and (asked is None or folder.is_sweep())
    trainings = folder.trainings if folder and known else distinct(asked or ())
    plan = (folder.plan if folder and known else None) or planned(trainings, library, most, launchers.chosen(launcher))
    if json:
        print_json(asdict(plan))
        return
    rows = sum(len(training.asked) for training in trainings)
    counts = ((rows, "experiment"), (len(trainings), "training"), (len(plan.fleets), "fleet"))
    show(", ".join(counted(number, noun) for number, noun in counts))
    from unroll.sweep.forecast import forecast

    times = forecast(plan, {training.name: training.experiment for training in trainings}, library)
    words = {
        name: f"{duration(one.training)} of training and {duration(one.evaluation)} of evaluation"
        for name, one in times.items()
    }
    show_fleets(plan, words)
    for change in plan.changes:
        show()
        show(change)
    if times and len(times) == len(plan.fleets):
        show()
        _show_total(list(times.values()))


def _show_total(times: Sequence[Forecast]) -> None:
    """All fleets together, one after another; where evaluation is a large share of it, what makes it smaller."""
    training, evaluation = sum(one.training for one in times), sum(one.evaluation for one in times)
    share = evaluation / max(training + evaluation, 1e-9)
    show(
        f"about {duration(training + evaluation)} in all: {duration(training)} of training, "
        f"{duration(evaluation)} of evaluation ({share:.0%})"
    )
    most = max(one.evaluations for one in times)
    if share > LARGE_SHARE:
        show(
            f"Each run is evaluated {most} times: --evaluations N makes it N times, and --test-tokens N scores less "
            "of the test set."
        )


def _sweep(
    folder: SweepFolder,
    library: Library,
    asked: list[Experiment] | None,
    most: int | None,
    launcher: str,
    save_every: int | None,
    told: Sequence[str],
    quiet: bool,
    json: bool,
) -> None:
    from unroll.cli.sweep_display import print_answers, print_table, show_failures, watch
    from unroll.sweep import table
    from unroll.sweep.answers import answers
    from unroll.sweep.sweep import results
    from unroll.sweep.sweep import sweep as drive

    if folder.is_sweep() and folder.plan is not None:
        if most is not None:
            warn(f"--most changes nothing here: the plan in {folder.path} stands.")
    elif most is None and not quiet and (asked is not None or folder.is_sweep()):
        say("Planning: trying how many runs are fastest side by side.")
    name = shell_word(folder.path)
    try:
        watch(drive(folder, library, asked, most, save_every, launcher, told), quiet)
    except Interrupted:
        again = "" if launcher == "local" else f" --launcher {shell_word(launcher)}"
        say(f"Saved. Go on with:  unroll sweep --resume {name}{again}{options.tracked(told)}")
        raise
    rows, failures = results(folder), folder.failures
    if json:
        best = [row["run"] for row in table.best(rows).values()]
        every = [{**asdict(answer), "words": answer.in_words()} for answer in answers(rows)]
        print_json({"sweep": str(folder.path), "rows": rows, "best": best, "answers": every, "failures": failures})
    elif not quiet:
        print_table(rows)
        print_answers(rows)
    if not quiet:
        say(f"Table: {folder.path / 'table.csv'}.  Runs: {folder.path / 'runs'}")
    if failures:
        show_failures(failures, len({row["run"] for row in rows}))
        raise typer.Exit(1)
