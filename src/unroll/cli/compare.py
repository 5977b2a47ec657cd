"""`unroll compare`: schemes on one corpus at equal budgets."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from unroll.base.durations import seconds_in
from unroll.base.errors import ConfigurationError, Interrupted, counted
from unroll.cli import options
from unroll.cli.options import option
from unroll.cli.screen import duration, on_a_terminal, print_json, say, shell_word, show, warn
from unroll.experiment.experiment import scheme_options

LEAST = 20  # columns of a terminal


def compare(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="A text, a folder, MIDI, or a name of `data list`.")],
    schemes: Annotated[
        str | None, option("The paper's schemes [1,2,3,4; none where --train says others].", metavar=options.LIST)
    ] = None,
    train: Annotated[list[str] | None, option(f"{options.PROCEDURE} Again for more.", metavar="PROCEDURE")] = None,
    sample: Annotated[
        list[str] | None,
        option("Sampling procedure of each --train, in their order [what suits it].", metavar="PROCEDURE"),
    ] = None,
    k1: Annotated[str | None, option("Tokens between two updates [k2/5 and k2].", metavar=options.LIST)] = None,
    k2: Annotated[int | None, option("Tokens that gradients flow back [100].")] = None,
    seeds: Annotated[int, option("Number of seeds of each scheme and k1 [3].")] = 3,
    budget: Annotated[str | None, option("How long all of it may take: 90s, 10m, 1h [10m].", metavar="TIME")] = None,
    out: Annotated[Path | None, option("The folder [compare/ and the corpus's name].")] = None,
    preset: Annotated[str, option("paper, or small: as for `unroll train` [small].")] = "small",
    most: Annotated[int | None, option("Runs that may train side by side [measured].")] = None,
    launcher: Annotated[
        str, option("Where runs are trained: NAME[,key=value…]; processes trains one fleet per core [local].")
    ] = "local",
    save_every: options.SaveEvery = None,
    quiet: options.Quiet = False,
    json: Annotated[bool, option("At the end print one JSON object.", "--json")] = False,
    **given: Any,
) -> None:
    """Which scheme for this text? Trains schemes at equal budgets, and says what to take, and how sure that is.

    \b
    unroll compare book.txt --budget 10m
    unroll compare book.txt --schemes 1,3 --train conditional,reset=0.01 --k1 20,50,100 --seeds 5 --budget 1h
    unroll compare book.txt --batches 2000                    so many batches a run, however long that takes

    The time is for everything: planning, training, evaluation, sampling and measuring. Training goes in rounds, so that
    all runs end at one batch. Interrupted, the same command goes on; with a larger --budget it goes on from the end.
    Where the corpus spares it, a validation set chooses the best point of each run.
    """
    began = time.monotonic()
    wrong: list[str] = []
    chosen = _chosen(schemes, train or [], sample or [], wrong)
    several = _numbers("k1", k1, wrong)
    seconds = _seconds(wrong, budget if budget or given.get("batches") else "10m")
    if wrong:
        raise ConfigurationError(*wrong)

    from unroll.cli.sweep_display import show_failures, watch
    from unroll.corpus.open_corpora import Library
    from unroll.sweep.answer_shown import WIDTH
    from unroll.sweep.comparison import asked as asking
    from unroll.sweep.comparison.compare import default_out
    from unroll.sweep.comparison.drive import drive
    from unroll.sweep.comparison.folder import ComparisonFolder
    from unroll.sweep.comparison.shown import read
    from unroll.sweep.paced.clock import clock

    settings = {**options.said(given), "k2": k2}
    batches = settings.pop("batches", None)
    options.require_save_every(save_every)
    asked = asking.asked(corpus, chosen, several, seeds, seconds, batches, settings, preset)
    folder, library = ComparisonFolder(out or default_out(corpus)), Library()
    folder.refuse_occupied()
    for note in library.open(asked.experiments[0]).notes:
        warn(note)
    if not quiet:
        say(f"Comparing in {folder.path}. Planning: trying how many runs are fastest side by side.")
    try:
        watch(drive(folder, library, asked, clock(began=began), most, save_every, launcher), quiet, brief=True)
    except Interrupted:
        say("Saved. Go on with the same command.")
        raise
    found, failures = read(folder), folder.failures
    if json:
        print_json({"comparison": str(folder.path), **found.facts})
    elif not quiet:
        width = shutil.get_terminal_size().columns if on_a_terminal() else WIDTH
        for line in found.lines(max(min(width, WIDTH), LEAST)):
            show(line)
        show()
        show(" ".join(map(shell_word, found.facts["command"])))
    if not quiet:
        if asked.budget is not None:
            spent = duration(found.facts["clocks"]["spent"])
            say(f"Took {spent} of {duration(asked.budget)}, in {counted(len(found.facts['rounds']), 'round')}.")
        say(f"Answer: {folder.path / 'compare.json'}.  A page of it: unroll report {shell_word(folder.path)}")
    if failures:
        show_failures(failures, int(found.facts["runs"]))
        if len(failures) == found.facts["runs"]:
            raise typer.Exit(1)


def _chosen(schemes: str | None, train: list[str], sample: list[str], wrong: list[str]) -> list[dict[str, Any]]:
    """The schemes by number, then each --train with its --sample."""
    chosen = []
    numbers = _numbers("schemes", schemes, wrong) or ([] if train else [1, 2, 3, 4])
    if len(sample) > 1 and len(sample) != len(train):
        wrong.append(
            f"--sample is said {len(sample)} times, --train {len(train)} times: give each --train one, or none."
        )
        return []
    if sample and not train:
        wrong.append("--sample belongs to a --train: give both, or a number with --schemes.")
    samples: list[str | None] = [*(sample * len(train) if len(sample) == 1 else sample)] or [None] * len(train)
    pairs: list[tuple[int | None, str | None, str | None]] = [(number, None, None) for number in numbers]
    for words in [*pairs, *((None, *pair) for pair in zip(train, samples, strict=False))]:
        try:
            chosen.append(scheme_options(*words))
        except ConfigurationError as error:
            wrong += [problem.replace("--scheme ", "--schemes ") for problem in error.problems]
    return chosen


def _numbers(name: str, words: str | None, wrong: list[str]) -> list[int] | None:
    """`1,2` as numbers, each once."""
    numbers = []
    for word in dict.fromkeys(part.strip() for part in (words or "").split(",") if words is not None):
        try:
            numbers.append(int(word))
        except ValueError:
            wrong.append(f"--{name} takes integers, separated by commas. Got {word!r} in {words!r}.")
    return numbers or None


def _seconds(wrong: list[str], budget: str | None) -> float | None:
    try:
        return None if budget is None else seconds_in(budget)
    except ConfigurationError as error:
        wrong += error.problems
    return None
