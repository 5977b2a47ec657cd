"""In a worker of the cluster: train one fleet in a folder of this attempt alone, and send what comes of it.

No worker ever has a path or an open file in a run's own folder. It trains in a folder whose name no other attempt ever
has, and the driver alone puts files where they belong. So a worker that was given up, and wakes up later, can write
nothing that anybody reads.
"""

from __future__ import annotations

import _thread
import os
import platform
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from unroll.base import locks, untrusted
from unroll.base.errors import Interrupted, SaveError, UnrollError
from unroll.base.version import VERSION
from unroll.corpus.open_corpora import Library
from unroll.runs.checkpoints import KEPT
from unroll.runs.folder import CHECKPOINTS, RunFolder
from unroll.sweep.launchers import Begun, Failed, Job, Noted, Progressed, Report, TooLarge, work
from unroll.sweep.launchers import _ray_parcels as parcels
from unroll.sweep.launchers._ray_parcels import Apart, Arrived, Copies, Done, Errand, Full, Parcel, Stopped, Unfit
from unroll.sweep.launchers._work import where
from unroll.training import relocate
from unroll.training.signals import Watch

SCRATCH = "unroll-attempt-"
NONCE = "nonce"
LONGEST_NONCE = 256
STATUS = "status.json"


def versions() -> dict[str, str]:
    """What must be the same wherever a sweep's runs are trained."""
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "torch": str(torch.__version__),
        "Unroll": VERSION,
    }


def called(packed: bytes, references: list[Any], threads: int) -> tuple[bool, Any]:
    """Compute a function here; whether it returned, and what it gave back or the error that it raised."""
    import ray

    torch.set_num_threads(threads)
    function, arguments, keys = parcels.unpack(packed, ray.get, references)
    try:
        return True, function(*arguments, **keys)
    except UnrollError as error:
        return False, error


def train(packed: bytes, references: list[Any], bell: Any) -> Iterator[tuple[Any, ...]]:
    """Run an errand, until it is over or the bell rings; messages of several things each."""
    import ray

    # Ids that lie in Ray's shared memory cannot be written, and nothing writes to them.
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
    errand, library = parcels.unpack(packed, ray.get, references)
    if (mine := versions()) != errand.versions:
        node = ray.get_runtime_context().get_node_id()
        yield (Unfit(node, ", ".join(f"{name} {version}" for name, version in mine.items())),)
        return
    if errand.shared and not reads(errand.shared.folder, errand.shared.nonce):
        yield (Apart(),)
        return
    place = where(relocate.places(errand.job.device)[0])
    yield (Arrived(place, ray.get_runtime_context().get_node_id()),)
    with Watch() as watch:  # training has one of its own; this one hears what comes before and after it
        over = _listen(bell, ray)
        try:
            yield from attempt(errand, library, watch)
        finally:
            over()


def attempt(errand: Errand, library: Library, watch: Watch) -> Iterator[tuple[Any, ...]]:
    """Train the fleet of an errand in a folder of this attempt, and say what comes of it, the new files included."""
    job = errand.job
    with ExitStack() as held:
        try:
            scratch = _scratch(errand, held)
            outs = tuple(str(scratch / name) for name in job.runs)
            _begin(job, outs, errand.begun or tuple(parcels.contents(RunFolder(out)) for out in job.outs))
        except OSError as error:
            yield (Full(f"{error.strerror or error}"),)
            return
        outbox = Outbox(job, outs, movable=errand.shared is not None)
        mail: list[Report] = []
        sent = time.monotonic()
        last: Done | Stopped | Full = Done()
        try:
            reports = held.enter_context(closing(_generator(replace(job, outs=outs, track=()), library)))
            for report in reports:
                if isinstance(report, Progressed):  # the last one says it all
                    mail = [before for before in mail if not isinstance(before, Progressed)]
                mail.append(_seen_from_the_driver(report, outs, job.outs))
                news = outbox.news()
                yield from (message for message in news)  # Ray sends into what it iterates over: a list has no `send`
                if news or isinstance(report, Begun | Failed) or time.monotonic() - sent > errand.every:
                    yield tuple(mail)
                    mail, sent = [], time.monotonic()
                if watch.number is not None:
                    reports.close()  # which saves
                    raise Interrupted(watch.number)
        except Interrupted as error:
            last = Stopped(error.signal_number)
        except SaveError as error:
            last = Full(_elsewhere(str(error), outs, job.outs))
        yield from (message for message in outbox.news())
        yield (*mail, last)


def _generator(job: Job, library: Library) -> Generator[Report, None, None]:
    yield from work(job, library)


def reads(folder: str, nonce: str) -> bool:
    """Whether this machine sees a folder in which the driver has written a nonce."""
    try:
        return untrusted.read(Path(folder) / NONCE, LONGEST_NONCE).decode() == nonce
    except (OSError, ValueError):
        return False


def _scratch(errand: Errand, held: ExitStack) -> Path:
    """A new folder for this attempt. One that is shared is removed by the driver, when it has taken what it needs."""
    if errand.shared:
        folder = Path(errand.shared.folder) / errand.attempt
        folder.mkdir()
        return folder
    clear_left_over()
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH))
    held.callback(shutil.rmtree, folder, ignore_errors=True)
    held.enter_context(locks.hold(folder, missing="", busy=""))  # so that it is known to be in use
    return folder


def clear_left_over() -> None:
    """Remove the scratch folders of workers of this machine that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with suppress(OSError, UnrollError):
            if untrusted.is_folder(folder) and folder.lstat().st_uid == os.getuid():
                with locks.hold(folder, missing="", busy="") as left_over:
                    abandoned = left_over is not None
                if abandoned:
                    shutil.rmtree(folder, ignore_errors=True)


def _begin(job: Job, outs: tuple[str, ...], begun: tuple[dict[str, bytes], ...]) -> None:
    """Lay out the runs that have begun."""
    for experiment, out, files in zip(job.experiments, outs, begun, strict=True):
        if files:
            Path(out).mkdir()
            parcels.place(Path(out), files)
            RunFolder(out).experiment = experiment


def _listen(bell: Any, ray: Any) -> Any:
    """Be interrupted, as by Ctrl-C, when the bell rings or its owner is gone; gives what ends that."""
    over = threading.Event()

    def listen() -> None:
        with suppress(Exception):
            ray.get(bell.wait.remote())
        if not over.is_set():
            _thread.interrupt_main(signal.SIGINT)

    threading.Thread(target=listen, daemon=True).start()
    return over.set


class Outbox:
    """Notices which files of the runs are new, and packs them."""

    def __init__(self, job: Job, outs: tuple[str, ...], movable: bool) -> None:
        self.job, self.movable = job, movable
        self.folders = [RunFolder(out) for out in outs]
        self._sent = [_stamps(folder.path) for folder in self.folders]
        self._kept: list[list[int] | None] = [None for _ in outs]

    def news(self) -> list[tuple[Copies, ...]]:
        """Messages with new files, one a run. A run's status is written last: without a new one nothing is whole.

        That runs were saved is said of all of them after the last checkpoint has been sent, as it is in a fleet's own
        folders: a driver that is killed in between finds the batch that all of them have.
        """
        new = [copies for run in range(len(self.folders)) if (copies := self._of(run))]
        first, then = list[Copies](), list[Copies]()
        for copies in new:
            ends = self.folders[copies.run].has_ended()
            states = tuple(parcel for parcel in copies.parcels if parcel.name == STATUS and not ends)
            others = tuple(parcel for parcel in copies.parcels if parcel not in states)
            first += [replace(copies, parcels=others)] if others else []
            then += [replace(copies, parcels=states)] if states else []
        return [*((copies,) for copies in first), *([tuple(then)] if then else [])]

    def _of(self, run: int) -> Copies | None:
        folder, before = self.folders[run], self._sent[run]
        status = _stamp(folder.path / STATUS)
        if status is None or status == before.get(STATUS):
            return None
        now = _stamps(folder.path)
        changed = [name for name, stamp in now.items() if stamp != before.get(name)]
        there = folder.checkpoints()
        kept = there if self._kept[run] is None else sorted({*(self._kept[run] or []), *there})[-KEPT:]
        self._kept[run] = kept = [] if folder.has_ended() else kept
        self._sent[run] = now
        found = (self._parcel(folder.path, name) for name in changed if name != "run.toml")
        sent = [parcel for parcel in found if parcel and parcel.is_known()]
        sent.sort(key=lambda parcel: parcel.rank)
        return Copies(run, folder.experiment, tuple(sent), tuple(kept))

    def _parcel(self, folder: Path, name: str) -> Parcel | None:
        if self.movable and name.endswith(parcels.LARGE):
            return Parcel(name, None, None, str(folder / name))
        try:
            content = (folder / name).read_bytes()
        except FileNotFoundError:
            return None
        return Parcel(name, parcels.digest(content), content)


def _stamps(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What tells one file of a run from what stood under its name before."""
    paths = [*folder.glob("*"), *(folder / CHECKPOINTS).glob("*")]
    stamps = {str(path.relative_to(folder)): _stamp(path) for path in paths}
    return {name: stamp for name, stamp in stamps.items() if stamp}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = untrusted.require_regular(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _seen_from_the_driver(report: Report, here: tuple[str, ...], there: tuple[str, ...]) -> Report:
    """A report that names the runs' own folders, and not those of this attempt."""
    if isinstance(report, Noted):
        return replace(report, message=_elsewhere(report.message, here, there))
    if isinstance(report, TooLarge | Failed):
        return replace(report, reason=_elsewhere(report.reason, here, there))
    return report


def _elsewhere(text: str, here: tuple[str, ...], there: tuple[str, ...]) -> str:
    for mine, its in sorted(zip(here, there, strict=True), key=lambda pair: -len(pair[0])):
        text = text.replace(mine, its)
    return text
