"""`unroll advise`: which settings for this text."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from unroll.base.durations import seconds_in
from unroll.base.errors import Interrupted
from unroll.cli import options
from unroll.cli.options import option
from unroll.cli.screen import duration, on_a_terminal, print_json, say, shell_word, show, warn

LEAST = 20  # columns of a terminal


def advise(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="A text, a folder, MIDI, or a name of `data list`.")],
    budget: Annotated[str, option("How long all of it may take: 90s, 5m, 1h [5m].", metavar="TIME")] = "5m",
    need: Annotated[str, option("What counts most: quality, speed or memory [quality].")] = "quality",
    k1: Annotated[int | None, option("Tokens between two updates; varied unless it is said.")] = None,
    k2: Annotated[int | None, option("Tokens that gradients flow back; varied unless it is said.")] = None,
    out: Annotated[Path | None, option("The folder [advice/ and the corpus's name].")] = None,
    preset: Annotated[str, option("paper, or small: what the pilot begins with [small].")] = "small",
    most: Annotated[int | None, option("Runs that may train side by side [measured].")] = None,
    launcher: Annotated[
        str, option("Where runs are trained: NAME[,key=value…]; processes trains one fleet per core [local].")
    ] = "local",
    save_every: options.SaveEvery = None,
    quiet: options.Quiet = False,
    json: Annotated[bool, option("At the end print one JSON object.", "--json")] = False,
    **given: Any,
) -> None:
    """Which settings for this text? A pilot of short runs answers, within a budget of time.

    \b
    unroll advise book.txt
    unroll advise book.txt --budget 20m --need speed
    unroll advise book.txt --hidden 256                       this is not varied; all else is

    It tries schemes, k1, k2, units, learning rates and resets, keeps the best, gives them several seeds, and says what
    to take, what perplexity a full run will reach, how sure that is, what would change it, and the command.
    Interrupted, the same command goes on; with a larger --budget it goes on from the end.
    """
    began = time.monotonic()
    seconds = seconds_in(budget)
    from unroll.cli.sweep_display import watch
    from unroll.corpus.open_corpora import Library
    from unroll.sweep.advice import asked as asking
    from unroll.sweep.advice.advise import default_out
    from unroll.sweep.advice.drive import drive
    from unroll.sweep.advice.folder import AdviceFolder
    from unroll.sweep.advice.shown import read
    from unroll.sweep.answer_shown import WIDTH
    from unroll.sweep.paced.clock import clock

    options.require_save_every(save_every)
    asked = asking.asked(corpus, seconds, need, {**options.said(given), "k1": k1, "k2": k2}, preset)
    folder, library = AdviceFolder(out or default_out(corpus)), Library()
    folder.refuse_occupied()
    for note in library.open(asked.base).notes:
        warn(note)
    if not quiet:
        say(f"A pilot in {folder.path}: {duration(seconds)}, then advice.")
    try:
        watch(drive(folder, library, asked, clock(began=began), most, save_every, launcher), quiet, brief=True)
    except Interrupted:
        say("Saved. Go on with the same command.")
        raise
    found = read(folder)
    if json:
        print_json({"advice": str(folder.path), **found.facts})
    elif not quiet:
        width = shutil.get_terminal_size().columns if on_a_terminal() else WIDTH
        for line in found.lines(max(min(width, WIDTH), LEAST)):
            show(line)
        if found.facts["command"]:
            show()
            show(" ".join(map(shell_word, found.facts["command"])))
    if not quiet:
        say(f"Took {duration(found.facts['clocks']['spent'])} of {duration(seconds)}.")
        say(f"Advice: {folder.path / 'advice.json'}.  Its runs: unroll report {shell_word(folder.path)}")
