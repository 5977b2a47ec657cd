"""The options that `train` and `sweep` share: one value for a run, several for a grid.

The options of settings are made from the fields of `Experiment` and `Scheme`, which say all about themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from unroll.base.errors import ConfigurationError, InputError
from unroll.experiment.config_file import Written
from unroll.experiment.experiment import PRESETS, Experiment
from unroll.experiment.settings import Setting, help_of, is_list, one_value, options_of, types_of

if TYPE_CHECKING:
    from unroll.corpus.corpus import Corpus

SCHEME = "The paper's scheme, 1 to 4 [1]."
PROCEDURE = (
    "Training procedure: multi-loss, single-loss or conditional, with keys k3, decay, normalise, reset: "
    "conditional,k3=10,reset=0.1; or any point of the plane: loss=NAME,state=NAME."
)
FROM = (
    "Begin a new run from the weights of this RUN, with its model and vocabulary. Its scheme, optimiser and settings "
    "of training hold unless given; --batches, evaluations and device are not taken. --preset says how many batches."
)
NEW_SYMBOLS = "With --from: symbols that RUN does not know: refuse, or add to its vocabulary [refuse]."
OPTIMISER_STATE = "With --from: begin the optimiser anew, or keep what RUN's had gathered: new, keep [new]."
KEEP_OPTIMISER = "Keep at the end what --resume RUN --batches N needs to make the run longer."
LIST = "A,B,…"  # stands for the values of a setting that a sweep lists


def option(help: str, *names: str, metavar: str | None = None) -> Any:
    """An option whose help says its default in words."""
    return typer.Option(*names, help=help, metavar=metavar, show_default=False)


def _in_words(preset: Mapping[str, Any]) -> str:
    """What a preset sets."""
    scheme = preset["scheme"]
    values = {name: value for name, value in preset.items() if name != "scheme"} | {"k1": scheme.k1, "k2": scheme.k2}
    return ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in values.items())


Preset = Annotated[str, option(f"paper, or small: {_in_words(PRESETS['small'])} [paper].")]
Config = Annotated[
    Path | None, option("Start from the settings of a run.toml, or of a run's folder; other options go on top.")
]
Threads = Annotated[int | None, option("CPU threads [all cores].")]
Unknown = Annotated[
    str, option("Symbols that the run does not know: refuse them, or skip them and count them [refuse].")
]
SaveEvery = Annotated[int | None, option("Save every N batches [by the clock: 10 seconds apart or more].")]
Track = Annotated[
    str | None,
    option(
        "Who else is told of each evaluation: tensorboard, wandb, mlflow, separated by commas. It changes no result.",
        metavar="NAME,…",
    ),
]
PARENT_WEIGHTS = "With --from: begin from its last weights, or from its best ones, those of the best evaluation [last]."
Weights = Annotated[str, option("Whose weights: last, or best, those of the best evaluation [last].")]
Quiet = Annotated[bool, option("Say nothing but notes and errors.", "--quiet", "-q")]


def help_for(name: str) -> str:
    """The sentence of one setting of an experiment."""
    return next(help_of(each, known) for each, known in options_of(Experiment) if each.name == name)


def with_settings(lists: bool = False, **after: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command that takes `**given` an option for each setting: those of a class after the option it names.

    With `lists`, an option takes several values, where a sweep may vary the setting.
    """

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        plain = inspect.signature(command)
        hints = get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for name, parameter in plain.parameters.items():
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))
            if name in after:
                parameters += _parameters(after[name], lists)
        vars(command)["__signature__"] = plain.replace(parameters=parameters)
        return command

    return decorated


def _parameters(described: type, lists: bool) -> list[inspect.Parameter]:
    """A parameter for each setting of a class; None where nothing is said."""
    made = []
    for each, known in options_of(described):
        hint = types_of(described)[each.name]
        kind: Any = one_value(hint)
        metavar, names = known.metavar, tuple[str, ...]()
        if lists and listed(hint, known):
            kind, metavar = str, LIST
        elif is_list(hint):
            kind = list[str]
        elif kind is bool:
            names = (f"--{each.name.replace('_', '-')}",)  # without these words there would be a --no-… too
        annotation: Any = Annotated[kind | None, option(help_of(each, known), *names, metavar=metavar)]
        made.append(inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return made


def listed(hint: Any, known: Setting) -> bool:
    """Whether a sweep's option takes several values of a setting; a flag has but one."""
    return known.varies and one_value(hint) is not bool


def lists_of(described: type) -> dict[str, Any]:
    """The settings of which a sweep's options take several values, each with the type of one value."""
    hints = types_of(described)
    return {
        each.name: one_value(hints[each.name])
        for each, known in options_of(described)
        if listed(hints[each.name], known)
    }


def with_keys() -> set[str]:
    """The settings whose values may have keys behind them, with commas of their own."""
    return {each.name for each, known in options_of(Experiment) if known.keys}


def preset(name: str) -> dict[str, Any]:
    """The settings behind a preset's name: the experiment's own."""
    if name not in PRESETS:
        raise ConfigurationError(f"--preset must be one of {', '.join(PRESETS)}. Got {name!r}.")
    return {setting: value for setting, value in PRESETS[name].items() if setting != "scheme"}


def preset_pace(name: str) -> dict[str, int]:
    """The k1 and k2 of a preset's scheme, where it has one: they go with any training procedure."""
    scheme = PRESETS.get(name, {}).get("scheme")
    return {"k1": scheme.k1, "k2": scheme.k2} if scheme else {}


def require_save_every(batches: int | None) -> None:
    """Refuse a count that means nothing."""
    if batches is not None and batches < 1:
        raise ConfigurationError(
            f"save_every must be at least 1. Got {batches}. Leave --save-every out to save by the clock."
        )


def said(given: Mapping[str, Any], described: type = Experiment) -> dict[str, Any]:
    """The settings of a class that the user said."""
    hints = types_of(described)
    values = {each.name: given[each.name] for each, _ in options_of(described) if given.get(each.name) is not None}
    return {name: tuple(value) if is_list(hints[name]) else value for name, value in values.items()}


def tracked(told: Sequence[str]) -> str:
    """The end of a command that goes on and tells the same trackers."""
    return f" --track {','.join(told)}" if told else ""


@contextmanager
def with_another_text(written: Written | None, corpus: object) -> Iterator[None]:
    """Where the text of a configuration is gone or another one now, say how to train on what there is."""
    try:
        yield
    except InputError as error:
        if written is None or corpus:
            raise
        advice = f"{written.where} names that text. To train on another, or on what it is now, give a CORPUS beside it."
        raise type(error)(*error.problems, advice) from None


def notes_of_config(written: Written | None, asked: Experiment, texts: Sequence[Corpus]) -> list[str]:
    """What should be known of a run that begins from a configuration."""
    if written is None:
        return []
    kind = written.experiment.kind
    others = dict.fromkeys(text.vocabulary.kind for text in texts if asked.kind == "auto" != kind)
    left = [
        f"{written.where} has a {part} file beside its own text, which is left out here: --{part}-file names one."
        for part in ("validation", "test")
        if getattr(written.experiment, f"{part}_file")
        and not getattr(asked, f"{part}_file")
        and not (part == "validation" and asked.validation)
    ]
    return [
        *written.notes,
        *left,
        *(
            f"read as {other}; {written.where} has {kind}, for which say --kind {kind}."
            for other in others
            if other != kind
        ),
    ]
