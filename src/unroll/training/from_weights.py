"""`train_from`: a new run from another's weights, in one line of Python. The command line has `unroll train --from`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from unroll.base.errors import ConfigurationError, RunError, did_you_mean
from unroll.base.live import require_progress
from unroll.corpus.corpus import Corpus
from unroll.engines import devices
from unroll.experiment.experiment import Experiment, scheme_options
from unroll.experiment.scheme import Scheme
from unroll.runs import selection
from unroll.runs.folder import RunFolder
from unroll.runs.loaded import Run
from unroll.training import occupied, parent, trackers
from unroll.training.events import Event
from unroll.training.loop import resume, train_fleet, watch, with_curve
from unroll.training.occupied import Exist
from unroll.training.parent import OptimiserState
from unroll.training.preflight import refuse_another, refuse_hopeless
from unroll.training.start import NewSymbols, Start, start


def train_from(
    run: Run | str | Path,
    corpus: Corpus | str | Path,
    out: str | Path,
    *,
    new_symbols: NewSymbols = "refuse",
    optimiser_state: OptimiserState = "new",
    weights: str | None = None,
    exist: Exist = "error",
    progress: bool | None = None,
    on_event: Callable[[Event], object] | None = None,
    save_every: int | None = None,
    track: str | Sequence[str] = (),
    **settings: Any,
) -> Run:
    """Train a new run that begins from the weights of `run`, on the same or another corpus, and return it.

    run              the run, or its folder; one that has not ended gives the weights of its newest checkpoint
    new_symbols      what symbols mean that the run does not know: `refuse`, or `add` them to its vocabulary
    optimiser_state  `new`, or `keep` what the run's optimiser had gathered
    weights          `last` or `best`, those of its best evaluation; None: those that `run` was loaded with
    settings         fields of an Experiment or a Scheme that are to be others than the run's; `batches`, the
                     evaluations, what ends a run early and the device are not taken from the run

    Everything else is as `train` has it.

    >>> import tempfile, unroll
    >>> text = unroll.Corpus.from_text("to be or not to be, that is the question. " * 100)
    >>> tiny = unroll.Experiment(scheme=unroll.Scheme(k1=5, k2=10), hidden=8, dense=16, rows=4, batches=5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = unroll.train(tiny, f"{folder}/first", corpus=text)
    ...     second = unroll.train_from(first, text, f"{folder}/second", batches=3, learning_rate=0.0005)
    >>> second.status["batch"], second.experiment.hidden, second.experiment.parent == first.experiment.identity
    (3, 8, True)
    """
    occupied.require_choice(exist)
    require_progress(progress)
    track = trackers.chosen(track)
    begun = _start(run, corpus, new_symbols, optimiser_state, weights, settings)
    folder, asked = RunFolder(out), begun.experiment
    if exist == "resume" and folder.is_run() and folder.has_saved():
        occupied.begin_or_require_same(folder, asked, begun.corpus)
        device = None if asked.device == "auto" else asked.device
        return resume(
            out, asked.batches, device, asked.threads, begun.corpus, keep_optimiser=asked.keep_optimiser,
            progress=progress, on_event=on_event, save_every=save_every, track=track,
        )  # fmt: skip
    if exist == "error":
        occupied.refuse(folder)
    else:  # of a run that has saved nothing there is nothing to go on from: it begins again
        if exist == "resume" and folder.is_run():
            refuse_another(folder, asked, begun.corpus)
        refuse_hopeless([devices.resolve(asked)], [begun.corpus])
        _refuse_itself(run, folder)
        occupied.replace(folder)
    events = train_fleet([asked], [begun.corpus], [out], save_every=save_every, starts=[begun], track=track)
    watch(events, folder, progress, on_event, (*begun.corpus.notes, *begun.notes))
    return with_curve(folder, asked.device)


def _start(
    run: Run | str | Path,
    corpus: Corpus | str | Path,
    new_symbols: str,
    optimiser_state: str,
    weights: str | None,
    settings: Mapping[str, Any],
) -> Start:
    path = run.path if isinstance(run, Run) else run
    if not isinstance(path, str | os.PathLike):
        raise ConfigurationError(f"A run to begin from is a Run or its folder's path. Got {run!r}.")
    given, scheme = _divided(settings)
    loaded = run.weights if isinstance(run, Run) else selection.LAST
    began = parent.read(path, optimiser_state, weights or loaded)
    if not isinstance(corpus, Corpus):
        given["corpus"] = os.fspath(corpus)
    experiment = parent.experiment_of(began, given, scheme, optimiser_state)
    text = corpus if isinstance(corpus, Corpus) else Corpus.with_every_symbol(experiment)
    return start(began, experiment, text, new_symbols)


def _divided(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings as fields of an Experiment and as fields of its Scheme."""
    of_scheme = {each.name for each in fields(Scheme)}
    known = {each.name for each in fields(Experiment)} - {"corpus", *parent.RECORDED} | of_scheme
    wrong = [f"There is no setting {name!r}.{did_you_mean(name, known)}" for name in settings if name not in known]
    if wrong:
        raise ConfigurationError(*wrong)
    scheme = settings.get("scheme", {})
    if isinstance(scheme, Scheme):
        scheme = {name: getattr(scheme, name) for name in of_scheme}
    elif isinstance(scheme, int):
        scheme = scheme_options(scheme, None, None)
    beside = {name: value for name, value in settings.items() if name in of_scheme}
    rest = {name: value for name, value in settings.items() if name not in of_scheme and name != "scheme"}
    return rest, {**scheme, **beside}


def _refuse_itself(run: Run | str | Path, folder: RunFolder) -> None:
    path = run.path if isinstance(run, Run) else Path(run)
    if folder.path.exists() and os.path.samefile(path, folder.path):
        raise RunError(f"{folder.path} is the run to begin from: it is not replaced. Choose another folder with --out.")
