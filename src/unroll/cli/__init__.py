"""The command line: parse, call, print. Nothing here computes; nothing heavy is imported before it is needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from unroll.base.version import VERSION
from unroll.cli import (
    advise,
    bench,
    check,
    compare,
    data,
    drift,
    evaluate,
    export,
    memorised,
    options,
    report,
    reproduce,
    sample,
    score,
    study,
    sweep,
    train,
)
from unroll.cli.screen import show
from unroll.experiment.experiment import Experiment
from unroll.experiment.scheme import Scheme

COMMANDS: dict[str, Callable[..., None]] = {
    "train": train.train,
    "eval": evaluate.evaluate,
    "sample": sample.sample,
    "score": score.score,
    "drift": drift.drift,
    "memorised": memorised.memorised,
    "export": export.export,
    "sweep": sweep.sweep,
    "compare": compare.compare,
    "advise": advise.advise,
    "reproduce": reproduce.reproduce,
    "study": study.study,
    "report": report.report,
    "bench": bench.bench,
    "check": check.check,
}


@cache
def _whole(name: str) -> Any:
    function = COMMANDS[name]
    if name == "train":
        function = options.with_settings(train=Scheme, preset=Experiment)(function)
    elif name == "sweep":
        function = options.with_settings(lists=True, train=Scheme, preset=Experiment)(function)
    elif name in ("compare", "advise"):
        function = options.with_settings(preset=Experiment)(function)
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    alone.command(name)(function)
    return typer.main.get_command(alone)


def command(name: str) -> Any:
    """A command with all its options."""
    return sample.command() if name == "sample" else _whole(name)


class _Commands(TyperGroup):
    """The commands by name and first sentence. Only the one that is called is made whole: that takes time."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that these arguments name."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, command(name) if name in COMMANDS else listed, rest


app = typer.Typer(
    name="unroll",
    cls=_Commands,
    # Plain help: it answers in a fifth of the time, and reads the same in a pipe.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(asked: bool) -> None:
    if asked:
        show(f"unroll {VERSION}")
        raise typer.Exit


@app.callback()
def unroll(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train, evaluate and sample recurrent models of discrete sequences, under explicit schemes.

    \b
    Start here:
      unroll train stdlib --preset small --out runs/first     train on your own Python's standard library
      unroll sample runs/first --prompt "def "                draw text from it
      unroll eval runs/first                                  its perplexity, under both procedures
      unroll score runs/first essay.txt --tokens              what it thinks of a text, token by token
      unroll sweep stdlib --preset small --scheme 1,2,3,4 --seeds 3 --out sweeps/first      many runs, one table
      unroll compare stdlib --budget 10m                      which scheme for this text, and how sure that is
      unroll advise stdlib                                    what to take, within minutes, and the command

    \b
    A scheme is a training procedure and a sampling procedure:
      scheme  training                 sampling      in short
      1       multi-loss               windowed      best and most robust: start with it
      2       single-loss              windowed      learns more slowly
      3       multi-loss               progressive   the same training as 1, sampled at a fraction of its cost
      4       conditional multi-loss   progressive   carries states on; may go unstable

    k1 is how many tokens pass between two updates of the weights, k2 how many tokens back gradients flow.
    """


def _name_only(function: Callable[..., None]) -> Callable[[], None]:
    def without_options() -> None:
        """Stand for a command in the list of commands."""

    without_options.__doc__ = function.__doc__
    return without_options


for _name, _function in COMMANDS.items():
    app.command(_name)(_name_only(_function))
app.add_typer(data.app, name="data")
