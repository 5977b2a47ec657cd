"""`unroll data`: what there is to train on, and what a corpus is like."""

from __future__ import annotations

from typing import Annotated

import typer

from unroll.cli.screen import print_json, warn

app = typer.Typer(help="Corpora: list the named ones, look at any.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """The corpora that have a name."""
    from unroll.datasets import DATASETS

    if json:
        print_json({name: dataset.description for name, dataset in DATASETS.items()})
        return
    for name, dataset in DATASETS.items():
        typer.echo(f"{name:<10} {dataset.description}")


@app.command()
def info(
    corpus: Annotated[str, typer.Argument(help="A text file, a folder, or a name that `unroll data list` shows.")],
    encoding: Annotated[str, typer.Option(help="Of the text.")] = "utf-8",
    min_count: Annotated[int, typer.Option(min=1, help="Symbols rarer than this become one unknown symbol.")] = 1,
    split_seed: Annotated[int, typer.Option(min=0, help="Of the split into train and test set.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Tokens, symbols, split, and how well frequencies alone predict it."""
    from unroll.corpus import Corpus

    text = Corpus.open(corpus, encoding=encoding, min_count=min_count)
    split = text.split(split_seed)
    if json:
        facts = {"tokens": text.tokens, "unique": text.unique, "kind": text.vocabulary.kind, "sha256": text.sha256}
        print_json(facts | {"paper": text.paper is not None, "train": split.train, "test": split.test})
        return
    scored = split.test > 1
    rows = {
        "tokens": f"{text.tokens:,}",
        "different": f"{text.unique:,}",
        "kind": text.vocabulary.kind,
        "train / test": f"{split.train:,} / {split.test:,}",
        "unigram": f"perplexity {text.unigram_perplexity(split_seed):.3f}" if scored else "the test set is too short",
        "bigram": f"perplexity {text.bigram_perplexity(split_seed):.3f}" if scored else "the test set is too short",
        "paper": f"the paper's own file ({text.paper})" if text.paper else "not a file of the paper",
        "sha256": text.sha256,
    }
    for name, value in rows.items():
        typer.echo(f"{name:<14}{value}")
    for note in text.notes:
        warn(note)
