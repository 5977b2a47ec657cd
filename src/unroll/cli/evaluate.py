"""`unroll eval`: perplexity and bits per token, under both procedures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unroll.cli import options
from unroll.cli.estimate import announce_duration
from unroll.cli.screen import print_json, show, warn

if TYPE_CHECKING:
    from unroll.corpus.corpus import Corpus
    from unroll.runs.loaded import Run
    from unroll.runs.perplexities import Perplexity


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run's folder.", metavar="RUN")],
    corpus: Annotated[
        str | None,
        typer.Option(help="Another text, taken whole. The run's own is split as in training.", show_default=False),
    ] = None,
    sample: Annotated[
        str | None, typer.Option(help="Only this procedure: windowed or progressive [both].", show_default=False)
    ] = None,
    start: Annotated[
        str,
        typer.Option(help="Start from the first state, or from the last carried states (scheme 4): first, carried."),
    ] = "first",
    test_tokens: Annotated[
        int | None, typer.Option(min=2, help="Only this many tokens of the text [all].", show_default=False)
    ] = None,
    unknown: options.Unknown = "refuse",
    weights: options.Weights = "last",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    threads: options.Threads = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Perplexity and bits per token of a run: of its own test set, or of another text.

    Windowed: each token is predicted from the k2 tokens before it. Progressive: the state runs on through the whole
    text. The scheme's own procedure comes first. Every token after the first k2 counts.
    """
    from unroll.engines.devices import use_threads
    from unroll.model.conditioning import PROCEDURES
    from unroll.runs.known_text import require_choice
    from unroll.runs.loaded import load, read_as, read_text, scores_test_set
    from unroll.runs.perplexities import middle

    require_choice(unknown)
    use_threads(threads)
    loaded = load(run, device, weights)
    for note in loaded.notes:
        warn(note)
    scheme_procedure = loaded.experiment.scheme.sample
    # Windows begin at the first state by definition: only progressive reading can start from a carried one.
    others = (p for p in PROCEDURES if p != scheme_procedure)
    both = (scheme_procedure, *others) if start == "first" else ("progressive",)
    chosen = (sample,) if sample else both
    text = None if corpus is None else read_as(loaded, corpus)
    for note in text.notes if text else ():
        warn(note)
    read = read_text(loaded, text, unknown)
    if read.note:
        warn(read.note)
    own_text = text is None or (scores_test_set(loaded, text) and text.sha256 == loaded.experiment.sha256)
    scores = {
        procedure: _score(loaded, procedure, text, start, test_tokens, unknown, len(read.ids)) for procedure in chosen
    }
    # The median stands for many start states; their range is shown beside it.
    shown = {procedure: middle(score) for procedure, score in scores.items()}
    first = shown[chosen[0]]
    rows = [row.perplexity for row in scores[chosen[0]]]
    if json:
        print_json(
            {
                "perplexity": {procedure: score.perplexity for procedure, score in shown.items()},
                "tokens": first.tokens,
                "bits_per_token": first.bits_per_token,
                "skipped": read.tokens_skipped,
                **({"rows": rows, "range": [min(rows), max(rows)]} if start == "carried" else {}),
            }
        )
        return
    title = loaded.experiment.title or "text"
    show(f"{title}: {loaded.experiment.scheme}")
    scored = _scored_part(loaded, text or loaded.corpus, test_tokens) if own_text else ""
    whole = f"its test set {text.test_part.where}" if text is not None and text.test_part else "taken whole"
    show(scored or f"{corpus}, {_part(test_tokens) or whole}")
    show(f"{'procedure':<14}{'perplexity':>12}{'bits/token':>12}{'tokens':>10}")
    for procedure, score in shown.items():
        show(f"{procedure:<14}{score.perplexity:>12.4f}{score.bits_per_token:>12.4f}{score.tokens:>10,}")
    if start == "carried":
        show(f"the median over {len(rows)} carried start states, from {min(rows):.4f} to {max(rows):.4f}")


def _part(tokens: int | None) -> str:
    return "" if tokens is None else f"its first {tokens:,} tokens"


def _scored_part(run: Run, corpus: Corpus, test_tokens: int | None) -> str:
    """Which part of a run's own text is scored; a note where training scored another part, and so has other numbers."""
    trained = run.experiment.test_tokens
    whole = corpus.split(run.experiment.split_seed).test
    here, there = (whole if n is None else min(n, whole) for n in (test_tokens, trained))
    part = f"'s first {here:,} tokens" if here < whole else ""
    return f"its test set{part}" + ("" if here == there else f" (training scored {_part(trained) or 'all of it'})")


def _score(
    run: Run, procedure: str, corpus: Corpus | None, start: str, test_tokens: int | None, unknown: str, length: int
) -> list[Perplexity]:
    from unroll.runs.loaded import perplexity

    def scored(tokens: int | None) -> list[Perplexity]:
        return perplexity(run, procedure, corpus, start, tokens, unknown=unknown)

    total = length if test_tokens is None else min(length, test_tokens)
    k2 = run.experiment.scheme.k2
    what = f"{procedure}: {total:,} tokens"
    announce_duration(what, procedure, total, k2, scored)
    return scored(test_tokens)
