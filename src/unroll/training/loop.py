"""The loop: train M runs side by side, evaluate them on a logarithmic grid, save them, and go on exactly where they
stopped.

`train` trains one run and returns it; `resume` goes on with one. `train_fleet` is the loop itself, a generator of what
happened, so that its caller (the command line, a notebook, a test) decides what to show.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch

from unroll.base import generators, limits
from unroll.base.errors import Interrupted
from unroll.base.live import require_progress
from unroll.base.wording import go_on
from unroll.corpus.corpus import Corpus
from unroll.corpus.open_corpora import open_corpus
from unroll.engines import devices
from unroll.engines.choice import engine_of
from unroll.experiment.experiment import Experiment
from unroll.runs import curve
from unroll.runs.folder import RunFolder
from unroll.runs.loaded import Run, load
from unroll.training import extension, occupied, start, trackers
from unroll.training.bookkeeping import Bookkeeping, Draw
from unroll.training.events import Evaluating, Event, Stepped, Warned
from unroll.training.following import HURRY, PATIENCE, SOON, Trackers, tell
from unroll.training.learner import Learner
from unroll.training.occupied import Exist
from unroll.training.preflight import refuse_another, refuse_hopeless
from unroll.training.preflight import resume as ready
from unroll.training.progress import watched
from unroll.training.signals import Pressed, Watch
from unroll.training.start import Start
from unroll.training.trackers import Tracked


def train(
    experiment: Experiment,
    out: str | Path,
    corpus: Corpus | None = None,
    *,
    exist: Exist = "error",
    progress: bool | None = None,
    on_event: Callable[[Event], object] | None = None,
    save_every: int | None = None,
    track: str | Sequence[str] = (),
) -> Run:
    """Train one run into the folder `out` and return it.

    corpus       the text, where it is not to be opened by the experiment's own name for it
    exist        what a run in that folder means: `error` refuses it; `resume` goes on with it, returns it where it has
                 ended, and refuses another experiment; `replace` deletes it and begins anew
    progress     True, False, or None: a notebook and a terminal show it
    on_event     is called with everything that happens: Stepped, Evaluated, Ended, Warned. Where it raises, what was
                 trained is saved
    save_every   batches from one checkpoint to the next; by the clock otherwise
    track        the trackers that are told of each evaluation: tensorboard, wandb, mlflow

    >>> import tempfile, unroll
    >>> text = unroll.Corpus.from_text("to be or not to be, that is the question. " * 100)
    >>> tiny = unroll.Experiment(scheme=unroll.Scheme(k1=5, k2=10), hidden=8, dense=16, rows=4, batches=5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = unroll.train(tiny, out=f"{folder}/tiny", corpus=text)
    >>> run.status["state"], [line["batch"] for line in run.metrics]
    ('finished', [1, 2, 3, 4, 5])
    """
    occupied.require_choice(exist)
    require_progress(progress)
    track = trackers.chosen(track)
    corpus = corpus or open_corpus(experiment)
    folder = RunFolder(out)
    if exist == "error":
        occupied.refuse(folder)
    elif exist == "replace":
        refuse_hopeless([devices.resolve(corpus.described_in(experiment))], [corpus])  # before anything is deleted
        occupied.replace(folder)
    else:
        asked = corpus.described_in(experiment)
        occupied.begin_or_require_same(folder, asked, corpus)
        device = None if asked.device == "auto" else asked.device
        return resume(
            out, asked.batches, device, asked.threads, corpus, keep_optimiser=asked.keep_optimiser,
            progress=progress, on_event=on_event, save_every=save_every, track=track,
        )  # fmt: skip
    events = train_fleet([experiment], [corpus], [out], save_every=save_every, track=track)
    watch(events, folder, progress, on_event, corpus.notes)
    return with_curve(folder, experiment.device)


def resume(
    folder: str | Path,
    batches: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    corpus: Corpus | None = None,
    *,
    keep_optimiser: bool = False,
    progress: bool | None = None,
    on_event: Callable[[Event], object] | None = None,
    save_every: int | None = None,
    track: str | Sequence[str] = (),
) -> Run:
    """Go on with a run exactly where it stopped, and return it; one that has ended is returned as it is.

    batches      train longer than the run was to be; only more, and after its end only where it kept its optimiser
    device       where to compute from now on, and with how many threads: then the last bits may differ
    corpus       the text, where the run was trained on one in memory
    keep_optimiser  keep at its end what a longer run needs
    track        the trackers that are told; of a run that has ended they are told all
    """
    track = trackers.chosen(track)
    run = RunFolder(folder)
    if run.has_ended() and batches in (None, run.experiment.batches):
        run.tidy()
        run.require_weights()
        problems = tell(run, track)
        drawn = (run.path / curve.NAME).exists()
        loaded = load(folder, device or "auto") if drawn else with_curve(run, device or "auto")
        return replace(loaded, notes=(*loaded.notes, *problems))
    experiment, text, notes = ready(folder, batches, device, threads, corpus, keep_optimiser)
    events = train_fleet([experiment], [text], [folder], resume=True, save_every=save_every, track=track)
    watch(events, run, progress, on_event, notes)
    return with_curve(run, experiment.device)


def watch(
    events: Generator[Event, None, None],
    folder: RunFolder,
    progress: bool | None,
    on_event: Callable[[Event], object] | None,
    notes: Sequence[str] = (),
) -> None:
    """Train to the end, and show it."""
    try:
        watched(events, progress, on_event, folder.metrics if folder.is_run() else (), notes)
    except Interrupted as error:
        raise error.with_advice(go_on(folder.path)) from None


def with_curve(folder: RunFolder, device: str) -> Run:
    """The run, loaded, with perplexity.png beside it; why there is none is a note."""
    problem = curve.problem_saving(folder)
    run = load(folder.path, device=device)
    return replace(run, notes=(*run.notes, problem)) if problem else run


def train_fleet(
    experiments: Sequence[Experiment],
    corpora: Sequence[Corpus],
    outs: Sequence[str | Path],
    resume: bool = False,
    save_every: int | None = None,
    starts: Sequence[Start | None] = (),
    draw: Draw | None = None,
    track: str | Sequence[str] = (),
) -> Generator[Event, None, None]:
    """Train runs side by side, each into its own folder; with `resume`, from the newest batch that all of them hold.

    Checkpoints are made by the clock, or every `save_every` batches. A loop over this that is left early (by `break`,
    an exception, the end of the program) saves, as Ctrl-C does. `starts` are what runs that begin from another's
    weights begin from; `draw` draws a text at each evaluation, which is kept. `track` names the trackers that are told:
    one that is not there is a note, as one that fails.
    """
    told = trackers.named(track)
    return generators.closed_at_exit(_train(experiments, corpora, outs, resume, save_every, starts, draw, told))


def _train(
    experiments: Sequence[Experiment],
    corpora: Sequence[Corpus],
    outs: Sequence[str | Path],
    resume: bool,
    save_every: int | None,
    starts: Sequence[Start | None],
    draw: Draw | None,
    track: Sequence[str],
) -> Generator[Event, None, None]:
    experiments = [devices.resolve(corpus.described_in(e)) for e, corpus in zip(experiments, corpora, strict=True)]
    refuse_hopeless(experiments, corpora)
    if not resume:
        start.require(experiments, starts)
    torch.set_num_threads(experiments[0].threads or 1)
    device = devices.find(experiments[0].device)
    limits.require_files(len(outs))
    with ExitStack() as held:
        notes: list[str] = []
        folders = _held(held, experiments, corpora, outs, resume, notes)
        watch = held.enter_context(Watch())
        learner = Learner(experiments, corpora, engine_of(device, experiments[0].kernel))
        start.put(learner, starts)
        told = Trackers(track, [Tracked(*run) for run in zip(folders, experiments, strict=True)])
        held.callback(lambda: told.leave("failed", 0.0 if watch.quits else HURRY))
        books, process = Bookkeeping(learner, corpora, folders, watch, save_every, draw, told), os.getpid()
        for note in notes:
            yield books.event(Warned, message=note)
        yield from books.start(resume)
        told.begin()
        try:
            while not books.ended:
                if books.is_to_evaluate:
                    watch.check()
                    yield from books.warned(told.problems())
                    yield books.event(Evaluating)
                # All of it before any is shown: in the midst of it there is nothing whole to save.
                yield from [*books.evaluate_due()]
                if books.ended:
                    break
                watch.check()
                books.step()
                yield books.event(Stepped)
                books.save_if_due()
            told.close("finished")
            if busy := told.wait(SOON, watch.check):
                words = f"Waiting for {', '.join(busy)} to take what was told, at most {PATIENCE:g} seconds."
                yield books.event(Warned, message=words)
                told.wait(PATIENCE, watch.check)
            told.leave("finished", 0.0)
            yield from books.warned(told.problems())
        except Pressed as pressed:
            books.save("interrupted")
            told.leave("interrupted")
            yield from books.warned(told.problems())
            raise Interrupted(pressed.number) from None
        except GeneratorExit:
            if not watch.quits and os.getpid() == process:  # a process that forked has no business in these folders
                _save_left(books)
                told.leave("interrupted")
            raise


def _save_left(books: Bookkeeping) -> None:
    """Save what somebody leaves. An error would be raised where nobody can catch it: it becomes a warning."""
    try:
        books.save("interrupted")
    except Exception as error:
        text = f"Training was left after {books.learner.count:,} batches, and could not be saved there: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def _held(
    stack: ExitStack,
    experiments: Sequence[Experiment],
    corpora: Sequence[Corpus],
    outs: Sequence[str | Path],
    resume: bool,
    notes: list[str],
) -> list[RunFolder]:
    """The runs' folders, new or old, held by this process; nothing is written to a folder that another one holds.

    `notes` takes what is to be said of locks that were left over.
    """
    folders = [RunFolder(out) for out in outs]
    if not resume:
        for folder in folders:
            folder.refuse_occupied()
    for folder, experiment, corpus in zip(folders, experiments, corpora, strict=True):
        if not resume:
            folder.make()
        notes += filter(None, [stack.enter_context(folder.locked())])
        if not resume:
            folder.describe(experiment, corpus.vocabulary)
            continue
        folder.require_own_kind()
        folder.clear_partials()
        refuse_another(folder, experiment, corpus)
        extension.open_again(folder, experiment, len(folders))
        if folder.experiment != experiment:
            folder.experiment = experiment
    return folders
