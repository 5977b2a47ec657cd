"""`unroll score`: how likely a run finds a text, in all and token by token."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from unroll.base.errors import ConfigurationError
from unroll.cli import options, score_text
from unroll.cli.estimate import announce_duration
from unroll.cli.out_file import require_new_file
from unroll.cli.score_text import Scoring
from unroll.cli.screen import end_with_the_reader, print_pieces, say, warn

PAGES = (".html", ".htm")
PIECE = 1 << 16  # characters of JSON printed at a time
LONGEST_PAGE = 50_000  # tokens; browsers grow slow


def score(
    run: Annotated[Path, typer.Argument(help="A run's folder.", metavar="RUN")],
    file: Annotated[str, typer.Argument(help="A text; - reads standard input.", metavar="FILE")],
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Each token's surprisal and the five likeliest in its place.")
    ] = False,
    sample: Annotated[
        str | None, typer.Option(help="windowed or progressive [the scheme's own].", show_default=False)
    ] = None,
    unknown: options.Unknown = "refuse",
    weights: options.Weights = "last",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    threads: options.Threads = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write to this file: .html for a page to look at, .json for a program.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """How likely a run finds a text: log-probability, perplexity, bits per token and per byte.

    \b
    unroll score runs/first essay.txt
    unroll score runs/first essay.txt --tokens              coloured by surprise, in a terminal
    unroll score runs/first essay.txt --out essay.html      the same as a page
    echo -n "def main():" | unroll score runs/first - --json

    Every token but the first is predicted, each from the tokens before it: from k2 of them (windowed), or from all
    (progressive). Bits per byte count the text's UTF-8 bytes, so that runs on characters, bytes and words compare.
    """
    from unroll.engines.devices import use_threads
    from unroll.runs.known_text import require_choice
    from unroll.runs.loaded import load

    _require_new(out)
    require_choice(unknown)
    use_threads(threads)
    if out is not None and json:
        raise ConfigurationError("--json prints and --out writes: choose one of them.")
    loaded = load(run, device, weights)
    for note in loaded.notes:
        warn(note)
    text = score_text.read(loaded, file)
    for note in text.notes:
        warn(note)
    scoring = score_text.Scoring(loaded, text, sample, "standard input" if file == "-" else file, unknown)
    if scoring.read.note:
        warn(scoring.read.note)
    if scoring.unknown:
        warn(
            f"Not known to this run: {scoring.unknown:,} tokens. Each is scored as its one symbol for all unknown ones."
        )
    page = out is not None and out.suffix.lower() in PAGES
    if page and len(scoring.ids) > LONGEST_PAGE:
        raise ConfigurationError(
            f"A page holds at most {LONGEST_PAGE:,} tokens; {scoring.name} has {len(scoring.ids):,}. "
            "Score a part of it, or write --out FILE.json."
        )
    total = len(scoring.ids)
    what = f"{scoring.procedure}: {total:,} tokens"
    announce_duration(what, scoring.procedure, total, loaded.experiment.scheme.k2, scoring.rehearse)
    end_with_the_reader()
    if out is not None:
        _write(scoring, out, page, tokens)
    elif json:
        _print_json(scoring, tokens)
    else:
        from unroll.cli.score_screen import show_tokens, summarise

        if tokens:
            show_tokens(scoring.first, scoring.each())
        summarise(scoring.heading, scoring.total)


def _require_new(out: Path | None) -> None:
    """Refuse before any work what could not be written after it."""
    if out is None:
        return
    if out.suffix.lower() not in (*PAGES, ".json"):
        raise ConfigurationError(f"--out must end in .html or .json. Got {out}.")
    require_new_file(out)


def _print_json(scoring: Scoring, tokens: bool) -> None:
    """Print once it is whole: an error half-way leaves nothing on standard output."""
    import tempfile

    with tempfile.TemporaryFile("w+", encoding="utf-8") as whole:
        whole.writelines(scoring.as_json(tokens))
        whole.seek(0)
        print_pieces(iter(lambda: whole.read(PIECE), ""))


def _write(scoring: Scoring, out: Path, page: bool, tokens: bool) -> None:
    from unroll.base import atomic_files

    if page:
        from unroll.report import score_page

        every = list(scoring.each())
        atomic_files.write(out, score_page.page(scoring.heading, scoring.first, every, scoring.total))
    else:
        atomic_files.write_pieces(out, (piece.encode() for piece in chain(scoring.as_json(tokens), "\n")))
    say(f"{scoring.total.tokens:,} tokens scored into {out}")
