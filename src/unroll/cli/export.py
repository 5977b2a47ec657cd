"""`unroll export`: a run in the form that others compute with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unroll.cli import options
from unroll.cli.screen import say, warn


def export(
    run: Annotated[Path, typer.Argument(help="A run's folder.", metavar="RUN")],
    onnx: Annotated[Path, typer.Option(help="The file to write.", metavar="FILE", show_default=False)],
    weights: options.Weights = "last",
) -> None:
    """One step of a run as an ONNX file: token and states in, logits and states out, the vocabulary in its metadata.

    \b
    unroll export runs/first --onnx first.onnx

    docs/torch.md has a loop that samples from it with onnxruntime, and says how runs become torch modules and back.
    """
    from unroll.runs.exchange.onnx_file import to_onnx
    from unroll.runs.loaded import load

    loaded = load(run, "cpu", weights)
    for note in loaded.notes:
        warn(note)
    to_onnx(loaded, onnx)
    say(f"{onnx}: {onnx.stat().st_size:,} bytes, one step, {len(loaded.vocabulary):,} symbols.")
