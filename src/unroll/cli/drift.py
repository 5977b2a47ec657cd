"""`unroll drift`: perplexity by the number of tokens since the state was reset, as a table and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unroll.base.errors import ConfigurationError
from unroll.cli import options
from unroll.cli.estimate import ESTIMATED_TOKENS, announce_duration
from unroll.cli.out_file import require_new_file
from unroll.cli.screen import print_json, say, show, warn

if TYPE_CHECKING:
    from unroll.runs.drift import Drift
    from unroll.runs.loaded import Run


def drift(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.", metavar="RUN")],
    tokens: Annotated[
        int | None, typer.Option(help="How far to go [10 times k2, or half of the text].", show_default=False)
    ] = None,
    starts: Annotated[int, typer.Option(help="Stretches of the text, each read from the reset state.")] = 256,
    seed: Annotated[int, typer.Option(help="Where the stretches begin.")] = 0,
    corpus: Annotated[
        str | None,
        typer.Option(help="Another text, taken whole [the run's own test set].", show_default=False),
    ] = None,
    weights: options.Weights = "last",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    threads: options.Threads = None,
    out: Annotated[Path | None, typer.Option(help="Draw a picture: .png, .svg or .pdf.", show_default=False)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Does a state that runs on for ever go stale? Perplexity by the number of tokens since the state was reset.

    \b
    unroll drift runs/first --out drift.png
    unroll drift sweeps/first/runs/* --tokens 5000

    Training shows a model states up to k2 tokens old. Progressive sampling goes far beyond: where the curve rises
    after k2, windowed sampling (scheme 1) is the better choice; where it stays flat, progressive (scheme 3) gives as
    much for less; where it falls, the model remembers more than a window holds.
    """
    from unroll.engines.devices import use_threads
    from unroll.report.drift_picture import SUFFIXES, save
    from unroll.runs.drift import perplexity_since_reset
    from unroll.runs.loaded import load, text_ids

    use_threads(threads)
    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise ConfigurationError(f"--out must end in {', '.join(SUFFIXES)}. Got {out}.")
    if out is not None:
        require_new_file(out)
    if len({path.resolve() for path in runs}) < len(runs):
        raise ConfigurationError("A run is named twice.")
    drifts: dict[str, Drift] = {}
    loaded = {name: load(path, device, weights) for name, path in zip(_names(runs), runs, strict=True)}
    for name, run in loaded.items():
        for note in run.notes:
            warn(f"{name}: {note}")
        length = len(text_ids(run, corpus))
        _announce(name, run, length, tokens, starts, corpus)
        drifts[name] = perplexity_since_reset(run, tokens, starts, seed, corpus)
        if tokens is None and drifts[name].tokens < 10 * drifts[name].k2:
            warn(f"{name}: the text has {length:,} tokens, so it goes no further than {drifts[name].tokens:,}.")
    if json:
        print_json({"runs": [_facts(name, loaded[name], drift) for name, drift in drifts.items()]})
    else:
        for index, (name, drift) in enumerate(drifts.items()):
            if index:
                show()
            _table(name, loaded[name], drift)
    if out is not None:  # last, so that a picture that cannot be drawn loses no number
        save({_label(name, loaded[name]): drift for name, drift in drifts.items()}, out)
        say(f"Picture: {out}.")


def _announce(name: str, run: Run, length: int, tokens: int | None, starts: int, corpus: str | None) -> None:
    from unroll.runs.drift import reach
    from unroll.runs.loaded import perplexity

    k2 = run.experiment.scheme.k2
    # A window is k2 steps of one row; the stretches cost as much as this many windows.
    windows = length + starts * reach(length, k2, tokens) // k2
    if length >= k2 + ESTIMATED_TOKENS:
        what = f"{name}: {starts:,} stretches, and {length:,} windows"
        announce_duration(
            what, "windowed", windows, k2, lambda few: perplexity(run, "windowed", corpus, test_tokens=few)
        )


def _names(runs: list[Path]) -> list[str]:
    """The folders' names, with as much of their paths as distinguishes them."""
    parts = [path.resolve().parts for path in runs]
    depth = next(n for n in range(1, 1000) if len({p[-n:] for p in parts}) == len(parts))
    return ["/".join(p[-depth:]) for p in parts]


def _label(name: str, run: Run) -> str:
    scheme = run.experiment.scheme
    return f"{name} ({f'scheme {scheme.number}' if scheme.number else scheme.training})"


def _table(name: str, run: Run, drift: Drift) -> None:
    show(f"{name}: {run.experiment.title or 'text'}, {run.experiment.scheme}")
    show(
        f"{drift.starts:,} stretches of {drift.tokens:,} tokens; "
        f"windowed perplexity {drift.windowed.perplexity:.4f} ({drift.windowed.tokens:,} tokens)"
    )
    show(f"{'tokens since reset':>18}{'perplexity':>12}{'±':>9}{'nats above windowed':>22}{'±':>9}{'predictions':>13}")
    for b in drift.bins:
        ages = f"{b.first:,}" if b.first == b.last else f"{b.first:,} – {b.last:,}"
        spread = drift.perplexity(b) * b.above_error
        show(
            f"{ages:>18}{drift.perplexity(b):>12.4f}{spread:>9.4f}{b.above:>+22.4f}{b.above_error:>9.4f}"
            f"{b.predictions:>13,}{'   ← k2' if b.last == drift.k2 else ''}"
        )


def _facts(name: str, run: Run, drift: Drift) -> dict[str, object]:
    from dataclasses import asdict

    facts = {"run": str(run.path), "name": name, "scheme": run.experiment.scheme.number, "k2": drift.k2}
    bins = [asdict(b) | {"perplexity": drift.perplexity(b)} for b in drift.bins]
    return facts | {
        "tokens": drift.tokens,
        "starts": drift.starts,
        "windowed": drift.windowed.perplexity,
        "bins": bins,
    }
