"""`unroll sample`: text drawn from a run, shown as it is drawn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from unroll.cli.screen import print_json, visible, warn


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
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Draw text from a run.

    \b
    unroll sample runs/first --prompt "def main" --length 200 --temperature 0.7
    unroll sample runs/first --sample progressive --seed 7

    Windowed: every token from the k2 before it, as robust as it gets. Progressive: the state runs on; faster.
    """
    from unroll.decoding import Decoding
    from unroll.trained import load, stream

    decoding = Decoding(temperature, top_k, top_p)
    loaded = load(run, device)
    for note in loaded.notes:
        warn(note)
    own = loaded.experiment.scheme.sample
    procedure = sample or own
    if procedure != own:
        warn(f"sampled {procedure}; this run's scheme is sampled {own}.")
    pieces = stream(loaded, prompt, length, decoding, seed, procedure)
    if json:
        drawn = list(pieces)
        tokens, texts, logprobs = (list(part) for part in zip(*drawn, strict=True))
        one = {"text": "".join(texts), "tokens": tokens, "logprobs": logprobs, "procedure": procedure, "seed": seed}
        print_json({"samples": [one]})
        return
    if prompt and sys.stdout.isatty():
        typer.secho(visible(prompt), dim=True, nl=False)
    for _, text, _ in pieces:
        typer.echo(visible(text), nl=False)
        sys.stdout.flush()
    typer.echo()
