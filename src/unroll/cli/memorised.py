"""`unroll memorised`: what of a text stands in the data that a run was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unroll.base.errors import CorpusError
from unroll.cli import options
from unroll.cli.screen import print_json, say, show, warn

if TYPE_CHECKING:
    from unroll.corpus.tokens import Ids
    from unroll.runs.loaded import Run
    from unroll.runs.memorisation import Memorised

SHOWN = 400  # characters of a stretch


def memorised(
    run: Annotated[Path, typer.Argument(help="A run's folder.", metavar="RUN")],
    text: Annotated[
        str,
        typer.Argument(help="A file, read as the run's corpus was; or -, for piped text in UTF-8.", metavar="FILE"),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    weights: options.Weights = "last",
) -> None:
    """The longest stretch of a text that stands in a run's training data, and how much of it copied stretches cover.

    \b
    unroll sample runs/first --length 2000 | unroll memorised runs/first -
    unroll memorised runs/first poem.txt --json

    Natural text repeats itself, so the same is shown for stretches of the test set as long as the text.
    The run's corpus must be where it was. A line end that ends piped text is left out: `unroll sample` adds one.
    """
    from unroll.runs.loaded import load, read_as
    from unroll.runs.memorisation import memorised

    loaded = load(run, "cpu", weights)
    for note in loaded.notes:
        warn(note)
    if text == "-":
        ids = _piped(loaded)
    else:
        read = read_as(loaded, text)
        ids = loaded.vocabulary.translate(read.ids, read.vocabulary)
    (result,) = memorised(loaded, [ids], say)
    if json:
        print_json(result.facts())
    else:
        _show(result)


def _piped(run: Run) -> Ids:
    from unroll.corpus.tokens import reads_bytes

    content = typer.get_binary_stream("stdin").read().removesuffix(b"\n")
    if not content:
        raise CorpusError("Standard input is empty: pipe a text into `unroll memorised RUN -`, or name a file.")
    try:
        return run.vocabulary.encode(
            content.decode("utf-8", "surrogateescape" if reads_bytes(run.vocabulary.kind) else "strict")
        )
    except UnicodeDecodeError as error:
        byte = content[error.start]
        raise CorpusError(
            f"Standard input is not utf-8: byte 0x{byte:02X} at offset {error.start:,}. "
            "Name the file instead, which is read as the run's corpus was."
        ) from None


def _show(result: Memorised) -> None:
    from unroll.runs.memorisation import COVERED_FROM

    tokens = result.matches.tokens
    longest = result.longest
    show(f"longest stretch of the {tokens:,} tokens that stands in the training data: {result.matches.longest:,}")
    if longest:
        times = "once," if longest.times == 1 else f"{longest.times:,} times, first"
        show(f"from token {longest.at:,} on; in the corpus {times} from token {longest.place:,} on:")
        shown = longest.text if len(longest.text) <= SHOWN else longest.text[:SHOWN] + "…"
        for line in shown.split("\n"):
            show(f"  | {line}")
    test = [matches.longest for matches in result.test]
    of_several = f" (the middle of {len(test)}: {min(test):,} to {max(test):,})" if len(test) > 1 else ""
    length = "the same length" if result.test[0].tokens == tokens else f"{result.test[0].tokens:,} tokens, all there is"
    show(f"test text of {length}: {result.test_longest:,}{of_several}")
    show()
    show("covered by matches of at least" + "".join(f"{least:>10}" for least in COVERED_FROM) + " tokens")
    for name, covered in (("this text", result.matches.covered), ("test text", result.test_covered)):
        show(f"{name:<30}" + "".join(f"{covered(least):>10.1%}" for least in COVERED_FROM))
