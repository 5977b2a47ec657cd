"""`unroll sample`: text drawn from a run, shown as it is drawn."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unroll.cli.screen import print_json, say, visible, warn
from unroll.errors import ConfigurationError

if TYPE_CHECKING:
    from unroll.tokens import Ids
    from unroll.trained import Run


def sample(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    prompt: Annotated[
        str | None, typer.Option(help="What to go on from [k2 tokens of the test set].", show_default=False)
    ] = None,
    length: Annotated[int, typer.Option(help="Tokens to draw.")] = 500,
    temperature: Annotated[float, typer.Option(help="Below 1 safer, above 1 wilder; 0 is argmax.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Only the k likeliest tokens.", show_default=False)] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Only the likeliest tokens that reach p together.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same text.")] = 0,
    sample: Annotated[
        str | None, typer.Option(help="windowed or progressive [the scheme's own].", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Write to this file; a run of notes writes music to a .mid.", show_default=False)
    ] = None,
    tempo: Annotated[float, typer.Option(help="Of music: beats a minute.")] = 100.0,
    note_length: Annotated[float, typer.Option(help="Of music: beats a note.")] = 0.5,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Draw text from a run.

    \b
    unroll sample runs/first --prompt "def main" --length 200 --temperature 0.7
    unroll sample runs/first --sample progressive --seed 7
    unroll sample runs/bach --prompt "C4 E4 G4" --out tune.mid --tempo 90

    Windowed: every token from the k2 before it, as robust as it gets. Progressive: the state runs on; faster.
    """
    import numpy as np

    from unroll.decoding import Decoding
    from unroll.trained import load, prompt_ids, stream

    decoding = Decoding(temperature, top_k, top_p)
    if out and out.exists():
        raise ConfigurationError(f"{out} exists. Choose another file with --out.")
    if out and not out.absolute().parent.is_dir():
        raise ConfigurationError(f"{out.absolute().parent} is no folder. Choose another file with --out.")
    loaded = load(run, device)
    if out and _is_music(out) and loaded.vocabulary.kind != "notes":
        raise ConfigurationError(f"--out {out} is for notes; this run's tokens are {loaded.vocabulary.kind}.")
    for note in loaded.notes:
        warn(note)
    own = loaded.experiment.scheme.sample
    procedure = sample or own
    if procedure != own:
        warn(f"sampled {procedure}; this run's scheme is sampled {own}.")
    drawing = stream(loaded, prompt, length, decoding, seed, procedure)
    if json or out:
        drawn = list(drawing)
        ids = np.array([token for token, _ in drawn])
        if out:
            _write(loaded, ids, out, tempo, note_length)
            say(f"{len(ids):,} tokens into {out}")
        if json:
            facts = {"tokens": ids.tolist(), "logprobs": [p for _, p in drawn], "procedure": procedure, "seed": seed}
            print_json({"samples": [{"text": loaded.vocabulary.decode(ids), **facts}]})
        return
    before: list[int] = []
    if prompt and sys.stdout.isatty():
        typer.secho(visible(prompt), dim=True, nl=False)
        before = prompt_ids(loaded, prompt)[-1:].tolist()
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` has seen enough: end as other commands do
    for text in loaded.vocabulary.written((token for token, _ in drawing), before):
        typer.echo(visible(text), nl=False)
        sys.stdout.flush()
    typer.echo()


def _is_music(path: Path) -> bool:
    from unroll.midi import SUFFIXES

    return path.suffix.lower() in SUFFIXES


def _write(run: Run, ids: Ids, out: Path, tempo: float, note_length: float) -> None:
    """A file that a person can use: text, bytes, or music where notes go to a .mid."""
    from unroll import durable, midi_out

    if not _is_music(out):
        durable.write(out, run.vocabulary.render(ids))
        return
    lines = run.vocabulary.decode(ids).split("\n")
    midi_out.write_midi([[int(n) for n in line.split()] for line in lines if line.strip()], out, tempo, note_length)
