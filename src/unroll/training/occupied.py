"""What `exist` means where a run's folder is there already: refuse it, go on with it, or put a new run in its place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from unroll.base import locks, untrusted
from unroll.base.errors import ConfigurationError, RunError
from unroll.corpus.corpus import Corpus
from unroll.engines import devices
from unroll.experiment.experiment import Experiment
from unroll.runs.folder import FOLDERS, SIZES, RunFolder
from unroll.training.preflight import refuse_another, refuse_hopeless

Exist = Literal["error", "resume", "replace"]
CHOICES = ("error", "resume", "replace")
CHOICE = 'exist="resume" goes on with what is there, exist="replace" deletes it and begins anew.'
SHOWN = 3  # names of files in a message


def require_choice(exist: str) -> None:
    """Refuse anything but the three."""
    if exist not in CHOICES:
        raise ConfigurationError(f"exist must be one of {', '.join(CHOICES)}. Got {exist!r}.")


def refuse(folder: RunFolder) -> None:
    """Refuse a folder with anything in it; where it is a run, with what else can be said."""
    try:
        folder.refuse_occupied()
    except RunError as error:
        raise RunError(*error.problems, *[CHOICE] * folder.is_run()) from None


def begin_or_require_same(folder: RunFolder, experiment: Experiment, corpus: Corpus) -> None:
    """Begin a run where there is none, and refuse to go on with another's; `experiment` has its corpus's facts."""
    if not folder.is_run():
        resolved = devices.resolve(experiment)
        refuse_hopeless([resolved], [corpus])  # before there is a folder
        folder.begin(resolved, corpus.vocabulary)
        return
    refuse_another(folder, experiment, corpus)
    status = folder.status
    if folder.has_ended() and experiment.batches > folder.experiment.batches and not folder.has_kept():
        raise RunError(
            f"{folder.path} has {status['state']} after {status['batch']:,} batches, and {experiment.batches:,} are "
            "asked for now: it kept nothing to go on from (--keep-optimiser). "
            'Choose another folder with --out, or say exist="replace".'
        )


def replace(folder: RunFolder) -> None:
    """Delete a run, so that a new one can be put there: its files and nothing else, never through a link."""
    if not untrusted.present(folder.path):
        return
    if not untrusted.is_folder(folder.path):
        raise RunError(f"{folder.path} is a link or no folder: only a folder is replaced. Choose another with --out.")
    if not any(locks.others(folder.path)):
        return
    if not folder.is_run():
        raise RunError(f"{folder.path} is no run, and only a run is replaced. Choose another folder with --out.")
    folder.require_own_kind()
    with folder.locked():
        folder.clear_partials()
        if others := strangers(folder):
            raise holds_more(folder.path, "a run", others)
        folder.remove()


def holds_more(folder: Path, what: str, others: Sequence[str]) -> RunError:
    """The refusal of a folder in which there are files that are not ours."""
    more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
    return RunError(
        f"{folder} holds what is no part of {what}: {', '.join(others[:SHOWN])}{more}. Nothing was deleted. "
        "Move it elsewhere, or choose another folder with --out."
    )


def strangers(folder: RunFolder) -> list[str]:
    """What lies in a run's folder that a run does not make."""
    ours = {*SIZES, *FOLDERS}
    beside = [path.name for path in locks.others(folder.path) if path.name not in ours]
    kept = {f"batch-{batch:09d}.safetensors" for batch in folder.checkpoints()}
    kept |= {path.name for path in folder.event_files.files()}
    for name in FOLDERS:
        if untrusted.is_folder(inside := folder.path / name):
            beside += [f"{name}/{path.name}" for path in inside.iterdir() if path.name not in kept]
    return sorted(beside)
