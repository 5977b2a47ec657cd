"""The options that `train` and `sweep` share, in the same words: one value for a run, several for a grid."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import typer

from unroll.base import plugins
from unroll.base.errors import ConfigurationError
from unroll.experiment.experiment import PRESETS, Experiment

# What a grid may vary.
WORDS = {
    "scheme": "The paper's scheme, 1 to 4 [1].",
    "sample": "Sampling procedure: windowed or progressive.",
    "k1": "Tokens between two updates [20]. Small k1 uses data best.",
    "k2": "Tokens that gradients flow back [100]; the length of a window.",
    "batches": "Updates of the weights [12800].",
    "cell": "lstm, gru or rnn [lstm].",
    "peepholes": "Of the LSTM: paper, lasagne or off [paper].",
    "layers": "Recurrent layers [1].",
    "hidden": "Units a recurrent layer [512].",
    "dense": "Units of the dense layer [1024].",
    "dropout": "On the inputs of the dense layers [0].",
    "forget_bias": "What the LSTM's forget bias starts at [0].",
    "optimiser": "adam or rmsprop [adam].",
    "learning_rate": "Its learning rate [0.001].",
    "rows": "Windows a batch [64].",
    "clip": "Limit of each gate's gradient, elementwise, each step [50].",
    "rotation": "After an epoch the train set moves on: random or continue [random].",
    "seed": "Of weights, rotation and dropout [0].",
    "split_seed": "Of the split into train and test set [0].",
    "precision": "Of products: float32, float64; faster: bfloat16, on a GPU also tf32 [float32].",
}
PROCEDURE = (
    "Training procedure: multi-loss, single-loss or conditional, with keys k3, decay, normalise, reset: "
    "conditional,k3=10,reset=0.1; or any point of the plane: loss=NAME,state=NAME."
)


def option(help: str, *names: str, metavar: str | None = None) -> Any:
    """An option whose default is told in its own words."""
    return typer.Option(*names, help=help, metavar=metavar, show_default=False)


def one(name: str) -> Any:
    """A setting of a run."""
    return option(WORDS[name])


Preset = Annotated[str, option("paper, or small (hidden 128, 2,000 batches) [paper].")]
Shuffle = Annotated[bool | None, option("Shuffle the windows of an epoch (learned states only).", "--shuffle")]
Kind = Annotated[str | None, option("Of token: chars, bytes, words, notes, ids [guessed].")]
Encoding = Annotated[str | None, option("Of the text [utf-8].")]
Ext = Annotated[
    list[str] | None, option("Of a folder only files that end so, as in --ext .c; again for more.", metavar="EXT")
]
Exclude = Annotated[
    list[str] | None, option("Of a folder no files or folders like this: --exclude 'test*'.", metavar="PATTERN")
]
Ascii = Annotated[bool | None, option("Drop every byte above 127.", "--ascii")]
Separator = Annotated[
    str | None, option("With --kind ids: what stands between two fields, as in --separator , or tab [white space].")
]
MinCount = Annotated[int | None, option("Symbols rarer than this become one unknown symbol [1].")]
Evaluate = Annotated[str | None, option("During training score the scheme's own procedure, or both [own].")]
EvaluateCarried = Annotated[
    bool | None, option("Score carried states too: start from those that training carries.", "--evaluate-carried")
]
Evaluations = Annotated[int | None, option("So many evaluations, spread logarithmically [the paper's grid].")]
TestTokens = Annotated[int | None, option("Score only so many tokens of the test set [all].")]
Device = Annotated[str | None, option("auto, cpu, cuda or cuda:N [auto].")]
Kernel = Annotated[str | None, option(f"How layers run over time: auto, {', '.join(plugins.names('kernels'))} [auto].")]
Threads = Annotated[int | None, option("CPU threads [all cores].")]
SaveEvery = Annotated[int | None, option("Checkpoint every so many batches [by the clock].")]
Quiet = Annotated[bool, option("Say nothing but notes and errors.", "--quiet", "-q")]


def preset(name: str) -> dict[str, Any]:
    """The settings behind a preset's name."""
    if name not in PRESETS:
        raise ConfigurationError(f"--preset must be one of {', '.join(PRESETS)}. Got {name!r}.")
    return PRESETS[name]


def require_save_every(batches: int | None) -> None:
    """Raise unless it can be meant."""
    if batches is not None and batches < 1:
        raise ConfigurationError(
            f"save_every must be at least 1. Got {batches}. Leave --save-every out to save by the clock."
        )


def settings() -> set[str]:
    """The fields of an experiment that are options of their own."""
    found = {"corpus", "title", "sha256", "files", "bytes", "tokens", "unique"}
    return {f.name for f in fields(Experiment)} - {"scheme", *found}


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Of a command's options, the settings that were said."""
    found = {name: value for name, value in options.items() if value is not None and name in settings()}
    return found | {name: tuple(found[name]) for name in ("ext", "exclude") if name in found}
