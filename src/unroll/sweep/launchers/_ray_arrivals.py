"""The driver's side of a fleet's folders: it alone writes in them, and holds them while somebody trains the fleet."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from unroll.base import atomic_files, untrusted
from unroll.base.errors import RunError, SaveError
from unroll.corpus.corpus import Corpus
from unroll.corpus.open_corpora import Library
from unroll.experiment import corpus_place
from unroll.experiment.experiment import Experiment
from unroll.runs.checkpoints import Checkpoints
from unroll.runs.folder import CHECKPOINTS, RunFolder
from unroll.sweep.launchers import Job
from unroll.sweep.launchers._ray_parcels import Copies, Parcel, contents, digest
from unroll.training import following
from unroll.training.preflight import refuse_another


class Arrivals:
    """The folders of one fleet's runs, during one attempt."""

    def __init__(self, job: Job, library: Library) -> None:
        self.job, self.library = job, library
        self.folders = [RunFolder(out) for out in job.outs]
        self.notes: list[str] = []
        self._held = ExitStack()
        self._locked: set[int] = set()

    def take(self) -> None:
        """Hold the runs that have begun, and refuse what is no run of this fleet; new ones are held once they are."""
        try:
            for run, folder in enumerate(self.folders):
                if folder.is_run():
                    self._hold(run)
                    folder.require_own_kind()
                    folder.clear_partials()
                    refuse_another(folder, *self._described(run))
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Hold nothing any more."""
        self._held.close()
        self._locked.clear()

    def begun(self) -> tuple[dict[str, bytes], ...]:
        """What a worker that does not see the folders needs of them."""
        return tuple(contents(folder) for folder in self.folders)

    def progress(self) -> tuple[int, int]:
        """How much of the fleet is safe: runs that have ended, and the newest batch that all others hold."""
        ended, held = 0, list[set[int]]()
        for folder in self.folders:
            try:
                if folder.has_ended():
                    ended += 1
                else:
                    held.append(set(folder.checkpoints()))
            except RunError:  # what is wrong with it is said where it is trained
                held.append(set())
        return ended, max(set.intersection(*held), default=0) if held else 0

    def place(self, copies: Copies) -> None:
        """Put a run's files where they belong: what counts others after them, so that a kill leaves a run to go on
        with.
        """
        folder = self.folders[copies.run]
        experiment, corpus = self._described(copies.run)
        own = {name: getattr(experiment, name) for name in corpus_place.PLACES}
        experiment = replace(copies.experiment, **own)
        if not folder.is_run():
            folder.begin(experiment, corpus.vocabulary)
        elif folder.experiment != experiment:
            folder.experiment = experiment
        self._hold(copies.run)
        checkpoints = Checkpoints(folder.path / CHECKPOINTS)
        if not copies.ends:
            checkpoints.drop(after=max(copies.kept, default=-1))  # the worker went on from an earlier one
        for parcel in copies.parcels:
            _put(folder.path, parcel)
        there = checkpoints.batches()
        if copies.ends:
            folder.drop_checkpoints()
        elif not set(there).isdisjoint(copies.kept):
            for batch in set(there).difference(copies.kept):
                checkpoints.path(batch).unlink(missing_ok=True)

    def track(self, run: int) -> list[str]:
        """Tell the trackers of a run that has ended; what went wrong, in words."""
        return following.tell(self.folders[run], self.job.track)

    def _described(self, run: int) -> tuple[Experiment, Corpus]:
        experiment = self.job.experiments[run]
        corpus = self.library.open(experiment)
        return corpus.described_in(experiment), corpus

    def _hold(self, run: int) -> None:
        if run not in self._locked:
            note = self._held.enter_context(self.folders[run].locked())
            self._locked.add(run)
            if note:
                self.notes.append(note)


def _put(folder: Path, parcel: Parcel) -> None:
    """Put one file in its place: whole, or not at all."""
    path = folder / parcel.name
    if not parcel.is_known():
        raise SaveError(f"A worker sent {parcel.name!r}, which no run has.")
    if parcel.is_checkpoint:
        with suppress(FileExistsError):
            path.parent.mkdir()
        if not untrusted.is_folder(path.parent):
            raise SaveError(f"Could not save to {path.parent}: it is a link, and links are not followed.")
    if parcel.content is not None:
        if digest(parcel.content) != parcel.sha256:
            raise SaveError(f"{path} was damaged on its way here.")
        atomic_files.write(path, parcel.content)
        return
    try:
        untrusted.require_regular(Path(parcel.path or ""))
        os.replace(parcel.path or "", path)
        atomic_files.sync_folder(path.parent)
    except FileNotFoundError:
        if not parcel.is_checkpoint:  # of those the worker keeps the last two, and a newer one is on its way
            raise
    except OSError as error:
        raise SaveError(f"Could not save {path}: {error.strerror or error}.") from None
