"""`unroll data`: what there is to train on, and what a corpus is like."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unroll.base.errors import ConfigurationError
from unroll.cli.bar import Bar
from unroll.cli.screen import print_json, show, warn

if TYPE_CHECKING:
    from unroll.corpus.corpus import Corpus

SHOWN = 120  # symbols of a vocabulary
SHOWN_RARE = 20

app = typer.Typer(
    help="Corpora: list, look at, fetch, and turn MIDI into notes.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list")
def list_(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """The corpora that have a name."""
    from unroll.corpus.datasets import DATASETS
    from unroll.corpus.fetching import fetching

    described = {name: dataset.description for name, dataset in DATASETS.items()}
    for name, paper in fetching.PAPER.items():
        installed = fetching.installed(name)
        state = f"`unroll data fetch {name}` brings it" if installed is None else f"at {installed.path}"
        which = "" if installed is None or installed.paper else ", a reconstruction"
        described[name] = f"The paper's {name}: {paper.tokens:,} tokens, {paper.unique} different; {state}{which}."
    if json:
        print_json(described)
        return
    for name, description in described.items():
        show(f"{name:<10} {description}")


@app.command()
def info(
    corpus: Annotated[
        str, typer.Argument(help="A file, a folder, -, or a name that `unroll data list` shows.", metavar="CORPUS")
    ],
    kind: Annotated[str, typer.Option(help="Kind of token: auto, chars, bytes, words, notes, ids.")] = "auto",
    encoding: Annotated[str, typer.Option(help="Encoding of the text.")] = "utf-8",
    min_count: Annotated[int, typer.Option(min=1, help="Symbols rarer than this become one unknown symbol.")] = 1,
    ext: Annotated[
        list[str] | None,
        typer.Option(help="In a folder, only files with this ending.", metavar="EXT", show_default=False),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="In a folder, no files or folders like this.", metavar="PATTERN", show_default=False),
    ] = None,
    ascii: Annotated[bool, typer.Option("--ascii", help="Drop every byte above 127.")] = False,
    separator: Annotated[
        str | None, typer.Option(help="With --kind ids: what stands between two fields.", show_default=False)
    ] = None,
    split_seed: Annotated[int, typer.Option(min=0, help="Seed of the split into train and test set.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Tokens, symbols, split, and how well frequencies alone predict it."""
    from unroll.base import plugins
    from unroll.corpus.corpus import Corpus
    from unroll.corpus.fetching.fetching import PAPER

    wrong = None if kind == "auto" else plugins.problem("tokens", kind, "kind")
    if wrong:
        raise ConfigurationError(wrong)
    files = tuple(ext or ()), tuple(exclude or ())
    text = Corpus.open(corpus, kind, encoding, min_count, *files, ascii, separator)
    split = text.split(split_seed)
    for note in text.notes:
        warn(note)
    sets = {"train": split.train, **({"validation": split.validation} if split.validation else {}), "test": split.test}
    if json:
        facts = {"tokens": text.tokens, "unique": text.unique, "kind": text.vocabulary.kind, "sha256": text.sha256}
        print_json(facts | {"paper": text.paper is not None} | sets)
        return
    papers_file = PAPER.get(text.paper or Path(corpus).stem)
    paper = f"the paper's own file ({text.paper})" if text.paper else "not a file of the paper"
    if papers_file and not text.paper:
        paper = f"not the paper's file: as {papers_file.name} it is a reconstruction"
    papers_count = f"   (the paper: {{:,}} in {papers_file.name})" if papers_file else ""
    rows = {
        "name": text.name,
        "tokens": f"{text.tokens:,}" + (papers_count.format(papers_file.tokens) if papers_file else ""),
        "different": f"{text.unique:,}" + (papers_count.format(papers_file.unique) if papers_file else ""),
        "kind": text.vocabulary.kind,
        "symbols": " ".join(repr(symbol)[1:-1] for symbol in text.vocabulary.symbols[:SHOWN])
        + (" …" if text.unique > SHOWN else ""),
        "rare": _rare(text.rare()),
        ("train / valid / test" if split.validation else "train / test"): " / ".join(f"{n:,}" for n in sets.values()),
        **_bar(text, split_seed),
        "paper": paper,
        "sha256": text.sha256,
    }
    for name, value in rows.items():
        show(f"{name:<14}{'' if len(name) < 14 else '  '}{value}")


def _bar(text: Corpus, split_seed: int) -> dict[str, str]:
    """What a model should pass, a row a method."""
    from unroll.corpus.baselines import baselines

    if text.split(split_seed).test < 2:
        return {"to pass": "the test set is too short"}
    return {
        row.name: f"perplexity {row.perplexity:>9,.3f}   {row.bits_per_token:.4f} bits/token   "
        f"{row.bits_per_byte:.4f} bits/byte"
        for row in baselines(text, split_seed)
    }


def _rare(symbols: list[str]) -> str:
    from unroll.corpus.corpus import RARE

    if not symbols:
        return f"no symbol occurs fewer than {RARE} times"
    named = " ".join(repr(symbol)[1:-1] for symbol in symbols[:SHOWN_RARE]) + (
        " …" if len(symbols) > SHOWN_RARE else ""
    )
    return f"{len(symbols):,} occur fewer than {RARE} times: {named}   (--min-count {RARE} makes them one)"


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="english, finnish, linux or music.", metavar="NAME")],
    from_: Annotated[
        Path | None, typer.Option("--from", help="Take this file instead of downloading.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Bring one of the paper's data sets, checked against the id that its repository lists.

    A file of your own that is not the paper's is taken as a reconstruction, and every result says so.
    """
    from unroll.corpus.fetching import fetching

    before = fetching.installed(name)
    bar = Bar(name)
    try:
        fetched = fetching.fetch(name, from_file=from_, progress=bar)
    finally:
        bar.close()
    if json:
        print_json({"name": fetched.name, "path": str(fetched.path), "paper": fetched.paper, "origin": fetched.origin})
        return
    what = "the paper's file" if fetched.paper else "a reconstruction: every result will say so"
    show(f"{fetched.name}: {fetched.path} ({what}).")
    if before and before != fetched and before.path == fetched.path:
        show(f"It takes the place of what came from {before.origin}.")


@app.command()
def midi(
    folder: Annotated[Path, typer.Argument(help="A MIDI file or a folder of them.", metavar="FOLDER")],
    out: Annotated[Path, typer.Option(help="The note corpus: one piece a line.", show_default=False)],
    tolerance: Annotated[float, typer.Option(help="Seconds within which notes count as played together.")] = 0.03,
) -> None:
    """Turn MIDI into a note corpus: tracks merged, drums left out, simultaneous notes low to high, one piece a line."""
    from unroll.base import atomic_files
    from unroll.corpus.music.reading import read_folder

    if out.exists():
        raise ConfigurationError(f"{out} exists. Choose another with --out.")
    pieces = read_folder(folder, tolerance)
    atomic_files.write(out, pieces.text.encode())
    for line in pieces.table():
        show(line)
    for path, reason in pieces.skipped:
        warn(f"{path}: {reason}")
    for path, kept in pieces.duplicates:
        warn(f"{path}: has the same notes as {kept}")
