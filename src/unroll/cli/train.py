"""`unroll train`: one run, new or resumed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unroll.base.errors import ConfigurationError, Interrupted, UnrollError
from unroll.cli import beginning, options
from unroll.cli.options import option
from unroll.cli.screen import duration, print_json, say, say_words, shell_word, warn
from unroll.experiment import config_file
from unroll.experiment import experiment as experiments
from unroll.experiment.config_file import Written
from unroll.experiment.experiment import Experiment
from unroll.experiment.run_names import run_name, shape_of
from unroll.experiment.scheme import Scheme
from unroll.training import trackers

if TYPE_CHECKING:
    from unroll.corpus.corpus import Corpus
    from unroll.runs.folder import RunFolder
    from unroll.training.start import Start

# What may be said beside --resume: the run's length, upwards, and what does not change what it computes.
_PLACES = ("validation_file", "test_file")  # they may lie elsewhere now: what they hold is compared, not where
_RESUMABLE = {"batches", "device", "threads", "keep_optimiser"}


def train(
    corpus: Annotated[
        str | None,
        typer.Argument(
            help="A text file, a folder, MIDI, - for standard input, or a name that `unroll data list` shows.",
            metavar="CORPUS",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, option("The run's folder [runs/…, named after the run].")] = None,
    resume: Annotated[Path | None, option("Go on with this run, exactly where it stopped. Needs nothing else.")] = None,
    config: options.Config = None,
    parent: Annotated[Path | None, option(options.FROM, "--from")] = None,
    new_symbols: Annotated[str | None, option(options.NEW_SYMBOLS)] = None,
    optimiser_state: Annotated[str | None, option(options.OPTIMISER_STATE)] = None,
    weights: Annotated[str | None, option(options.PARENT_WEIGHTS)] = None,
    keep_optimiser: Annotated[bool, option(options.KEEP_OPTIMISER, "--keep-optimiser")] = False,
    scheme: Annotated[int | None, option(options.SCHEME)] = None,
    train: Annotated[str | None, option(options.PROCEDURE)] = None,
    preset: options.Preset = "paper",
    save_every: options.SaveEvery = None,
    track: options.Track = None,
    quiet: options.Quiet = False,
    json: Annotated[bool, option("At the end print one JSON object.", "--json")] = False,
    **given: Any,
) -> None:
    """Train a model on CORPUS, or go on with a run.

    \b
    unroll train book.txt --out runs/book                    scheme 1, as the paper recommends
    unroll train book.txt --preset small --out runs/quick    a small model, on a laptop's CPU
    unroll train --resume runs/book                          after Ctrl-C, a crash or a power cut
    unroll train --config runs/book/run.toml --seed 1        a new run like that one, but for the seed
    unroll train poems.txt --from runs/book --batches 400    a new run, which begins from that run's weights

    \b
    Which scheme? The paper's advice, in short:
      - Train with multi-loss (schemes 1 and 3): single-loss (2) learns more slowly.
      - Avoid carrying states between windows (4): as fast, less robust, unstable on noisy data.
      - Sample windowed (1) for robustness, progressive (3) for speed; the training is the same.
    Our finding (docs/paper.md): (4) trains stably. It looks unstable where it is scored from a state of zeros,
    which its training hardly ever meets; --train conditional,reset=0.01 meets it.

    k1 and k2: every k1 tokens a window of k2 tokens is read and gradients flow back through all of it. k1 at most k2
    skips no data; a smaller k1 uses each token more often (k2/k1 times in multi-loss training).
    """
    settings, scheme_fields = options.said(given), options.said(given, Scheme)
    options.require_save_every(save_every)
    told = trackers.chosen(track or ())
    settings |= {"keep_optimiser": True} if keep_optimiser else {}
    begun = None
    if resume is not None:
        others = [out, config, parent, new_symbols, optimiser_state, weights, scheme, train, *scheme_fields.values()]
        _refuse_contradictions(resume, settings, others, preset)
        if _already_ended(resume, settings.get("batches"), told, json):
            return
        experiment, text, folder = _resumed(resume, settings, corpus)
    elif parent is not None:
        if config is not None:
            raise ConfigurationError("--from takes that run's own settings: leave out --config, and give options.")
        how = (new_symbols or "refuse", optimiser_state or "new", weights or "last")
        begun, folder = beginning.begun(parent, corpus, settings, (scheme, train, scheme_fields), preset, out, *how)
        experiment, text = begun.experiment, begun.corpus
    else:
        beginning.refuse_alone(new_symbols, optimiser_state, weights)
        written = None if config is None else config_file.read(config)
        choose = written.scheme if written else experiments.scheme_options
        chosen = choose(scheme, train, scheme_fields.pop("sample", None))
        fields = chosen | options.preset_pace(preset) | scheme_fields
        experiment, text, folder = _new(corpus, settings, fields, preset, out, written)
    if not quiet:
        kind = text.vocabulary.kind
        say_words(f"{text.name}: {text.tokens:,} tokens ({kind}), {text.unique:,} different; {experiment.scheme}.")
        if sets := _sets(experiment, text):
            say_words(sets)
        say_words(f"{experiment.cell}, {experiment.layers} × {experiment.hidden}; {_where(experiment)}; into {folder}")
        if begun is not None:
            say_words(begun.words)
        beginning.say_extensible(experiment, resume is not None)
    choosing = resume is None and parent is None and preset == "paper" and "hidden" not in settings
    _train(experiment, text, folder, resume is not None, save_every, told, quiet, json, [begun], choosing)


def _sets(experiment: Experiment, text: Corpus) -> str:
    """How many tokens each set has, where the split is not the paper's."""
    split = text.split(experiment.split_seed, experiment.validation)
    if not (split.validation or text.test_part):
        return ""
    validation = f", validation {split.validation:,}" if split.validation else ""
    return f"Tokens: train {split.train:,}{validation}, test {split.test:,}."


def _where(experiment: Experiment) -> str:
    """What `auto` came to."""
    import torch

    from unroll.engines import devices, precisions

    run = devices.resolve(experiment)
    where = devices.describe(torch.device(run.device))
    return f"{precisions.described(run.precision, run.device)} on {where}, kernel {run.kernel}"


def _already_ended(resume: Path, batches: int | None, told: Sequence[str], json: bool) -> bool:
    """Asked only to go on, a run that has ended is no mistake: a script may ask again and again.

    Trackers are told all of it.
    """
    from unroll.runs.folder import RunFolder

    folder = RunFolder(resume)
    status = folder.status
    if status["state"] not in ("finished", "stopped") or batches is not None:
        return False
    folder.tidy()
    folder.require_weights()
    say(f"{resume} has {status['state']} after {status['batch']:,} batches; there is nothing to go on with.")
    if told:
        from unroll.training.following import tell

        for words in tell(folder, told):
            warn(words)
    from unroll.runs import curve

    if not (folder.path / curve.NAME).exists():  # killed before it was drawn, or a run of a sweep
        problem = curve.problem_saving(folder)
        if problem is None:
            say(f"Curve: {folder.path / curve.NAME}.")
        else:
            warn(problem)
    if json:
        _print_status(folder)
    return True


def _print_status(folder: RunFolder) -> None:
    lines = folder.metrics
    print_json({"run": str(folder.path), **folder.status, "metrics": lines[-1] if lines else None})


def _new(
    corpus: str | None,
    settings: dict[str, Any],
    scheme: dict[str, Any],
    preset: str,
    out: Path | None,
    written: Written | None,
) -> tuple[Experiment, Corpus, Path]:
    base = written.options(corpus is not None, settings) if written else {}
    source = corpus if corpus is not None else base.get("corpus")
    if not source and corpus is None:
        raise ConfigurationError(
            "Give a CORPUS: a text file, a folder, or a name (`unroll data list`); or --resume RUN."
        )
    named = {**base, "corpus": source, **options.preset(preset), **settings}
    experiment = experiments.from_options(named, scheme)
    from unroll.corpus.open_corpora import open_corpus
    from unroll.runs.folder import RunFolder
    from unroll.training.preflight import checkpoints_bytes, refuse_full_disk

    if out is not None:
        RunFolder(out).refuse_occupied()
    with options.with_another_text(written, corpus):
        text = open_corpus(experiment)
    for note in (*text.notes, *options.notes_of_config(written, experiment, [text])):
        warn(note)
    folder = out or Path("runs", default_name(text.name, experiment))
    RunFolder(folder).refuse_occupied()
    refuse_full_disk(folder, checkpoints_bytes(experiment, text.unique))
    return experiment, text, folder


def _refuse_contradictions(resume: Path, settings: dict[str, Any], others: list[Any], preset: str) -> None:
    """A run goes on as it began: a setting beside --resume must be what it was, unless it is the length."""
    from unroll.runs.folder import RunFolder

    run = RunFolder(resume).experiment
    may = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(_RESUMABLE))
    wrong = [
        f"{name} is {getattr(run, name)} in this run; got {value}. Only {may} may differ on resume."
        for name, value in settings.items()
        if name not in _RESUMABLE and value != getattr(run, name) and not (name in _PLACES and getattr(run, name))
    ]
    if any(value is not None for value in others) or preset != "paper":
        wrong.append(
            "--resume needs nothing else: leave out --out, --config, --preset and the scheme, which the run knows. "
            "CORPUS is for a text that lies elsewhere now."
        )
    if wrong:
        raise ConfigurationError(*wrong)


def _resumed(resume: Path, settings: dict[str, Any], corpus: str | None) -> tuple[Experiment, Corpus, Path]:
    from unroll.corpus import split_folders
    from unroll.corpus.open_corpora import open_corpus
    from unroll.runs.folder import RunFolder
    from unroll.training.preflight import resume as ready

    # Where the run was trained on a text in memory, nothing says how it was read, and its hash decides alone.
    places = {name: settings[name] for name in _PLACES if name in settings} | ({"corpus": corpus} if corpus else {})
    folder = RunFolder(resume)
    moved = open_corpus(split_folders.moved(folder.experiment, places), folder.vocabulary) if places else None
    given = {name: value for name, value in settings.items() if name in _RESUMABLE}
    experiment, text, notes = ready(resume, corpus=moved, **given)
    for note in notes:
        warn(note)
    return experiment, text, resume


def default_name(corpus: str, experiment: Experiment) -> str:
    """A folder name that tells runs apart at a glance."""
    s = experiment.scheme
    procedure = f"scheme{s.number}" if s.number else f"{s.training}-{s.sample}"
    return run_name(corpus, procedure, s.k1, s.k2, shape_of(experiment), experiment.seed, any_script=True)


def _scored(experiment: Experiment, text: Corpus) -> str:
    """Which tokens perplexities are over: the first k2 of a text are read, and not predicted."""
    whole, cut = text.split(experiment.split_seed).test, experiment.test_tokens
    is_cut = cut is not None and cut < whole
    read = cut if cut is not None and is_cut else whole
    part = f"the test set's first {read:,}" if is_cut else "the test set"
    return f"{read - experiment.scheme.k2:,} predicted tokens of {part}"


def _train(
    experiment: Experiment,
    text: Corpus,
    folder: Path,
    resumed: bool,
    save_every: int | None,
    told: Sequence[str],
    quiet: bool,
    json: bool,
    starts: list[Start | None],
    choosing: bool,
) -> None:
    from unroll.cli.display import advised, watch
    from unroll.runs import curve, selection
    from unroll.runs.folder import RunFolder
    from unroll.sampling.while_training import draw
    from unroll.training.loop import train_fleet

    try:
        before: list[dict[str, Any]] = []
        with suppress(UnrollError):  # what is wrong with them is said where the run goes on
            before = RunFolder(folder).metrics if resumed else []
        events = train_fleet([experiment], [text], [folder], resumed, save_every, starts, draw, told)
        watch(advised(events) if choosing and not quiet else events, quiet, before)
    except Interrupted:
        say(f"Saved. Go on with:  unroll train --resume {shell_word(folder)}{options.tracked(told)}")
        raise
    run = RunFolder(folder)
    problem = curve.problem_saving(run)
    if problem is not None:
        warn(problem)
    status, lines = run.status, run.metrics
    if json:
        _print_status(run)
    if status["state"] == "stopped":
        (warn if quiet else say)(f"Stopped. {status['reason']} The weights of batch {status['batch']:,} are kept.")
    elif status.get("reason"):
        (warn if quiet else say)(f"Ended early. {status['reason']}")
    if quiet:
        return
    for procedure, value in (lines[-1]["perplexity"] if lines else {}).items():
        number = math.inf if value is None else value
        say_words(f"{procedure:<12} perplexity {number:,.4f} over {_scored(experiment, text)}")
    best = selection.best(lines, experiment)
    if best is not None:
        say_words(f"{'best':<12} {best}")
    trained, evaluated = status["seconds"] * status["fleet"], status["evaluating"]
    share = evaluated / max(trained + evaluated, 1e-9)
    say_words(f"{duration(trained)} of training, {duration(evaluated)} of evaluation ({share:.0%} of the time)")
    name = shell_word(folder)
    drawn = f"Curve: {folder / curve.NAME}.  " if problem is None else ""
    say(f"{drawn}Next:  unroll sample {name}  or  unroll eval {name}")
