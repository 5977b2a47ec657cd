"""`unroll train --from`: a run that begins from another's weights; and what is said of a run that will end for good."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from unroll.base.errors import ConfigurationError
from unroll.cli import options
from unroll.cli.screen import say, warn
from unroll.experiment import experiment as experiments
from unroll.experiment.experiment import Experiment

if TYPE_CHECKING:
    from unroll.training.parent import Parent
    from unroll.training.start import Start

Said = tuple[int | None, str | None, dict[str, Any]]  # --scheme, --train, and fields of a scheme


def begun(
    run: Path,
    corpus: str | None,
    settings: dict[str, Any],
    scheme: Said,
    preset: str,
    out: Path | None,
    new_symbols: str,
    optimiser_state: str,
    weights: str,
) -> tuple[Start, Path]:
    """What a new run begins from, and its folder; everything is checked before there is one."""
    if corpus is None:
        raise ConfigurationError("Give a CORPUS to go on with: a text file, a folder, or a name (`unroll data list`).")
    from unroll.corpus.corpus import Corpus
    from unroll.runs.folder import RunFolder
    from unroll.training import parent as parents
    from unroll.training.preflight import checkpoints_bytes, refuse_full_disk
    from unroll.training.start import start

    if out is not None:
        RunFolder(out).refuse_occupied()
    parent = parents.read(run, optimiser_state, weights)
    length = {name: value for name, value in options.preset(preset).items() if name == "batches"}
    given = {"corpus": corpus, **length, **settings}
    experiment = parents.experiment_of(parent, given, _scheme(*scheme), optimiser_state)
    begun = start(parent, experiment, Corpus.with_every_symbol(experiment), new_symbols)
    for note in (*begun.corpus.notes, *begun.notes):
        warn(note)
    folder = out or Path("runs", _name(begun, parent))
    RunFolder(folder).refuse_occupied()
    refuse_full_disk(folder, checkpoints_bytes(begun.experiment, begun.corpus.unique))
    return begun, folder


def _scheme(number: int | None, train: str | None, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a scheme that are given. A procedure that is named is whole: its keys are not the parent's."""
    if number is None and train is None:
        return fields
    chosen = experiments.scheme_options(number, train, fields.pop("sample", None))
    return {"k3": None, "normalise": False, "reset": "epoch", **chosen, **fields}


def _name(begun: Start, parent: Parent) -> str:
    from unroll.cli.train import default_name

    return f"{default_name(begun.corpus.name, begun.experiment)}-from-{parent.digest[:8]}"


def refuse_alone(new_symbols: str | None, optimiser_state: str | None, weights: str | None) -> None:
    """These options say how a run begins from another."""
    given = {"--new-symbols": new_symbols, "--optimiser-state": optimiser_state, "--weights": weights}
    if names := [name for name, value in given.items() if value is not None]:
        raise ConfigurationError(f"{' and '.join(names)} say how a run begins from another's weights. Give --from RUN.")


def say_extensible(experiment: Experiment, resumed: bool) -> None:
    """Say at the beginning what cannot be had at the end."""
    from unroll.training import extension

    if (words := extension.note(experiment)) and not resumed:
        say(words)
