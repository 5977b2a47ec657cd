"""The command line, run inside the test's own process."""

from __future__ import annotations

import io
import signal
import sys
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from unroll.__main__ import main

TINY = ["--k1", "5", "--k2", "10", "--hidden", "8", "--dense", "12", "--rows", "4", "--threads", "1"]


class Result(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str


def unroll(*arguments: object, captured: bool = True) -> Result:
    """Run `unroll …`; a traceback is an error of the test. Not `captured`, it writes to the streams that are there."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    before = signal.getsignal(signal.SIGPIPE)  # which a command may change for its own process, and this one is not
    with ExitStack() as stack:
        stack.enter_context(patch.object(sys, "argv", ["unroll", *map(str, arguments)]))
        if captured:
            stack.enter_context(redirect_stdout(out))
            stack.enter_context(redirect_stderr(err))
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else int(bool(exit_.code))
        finally:
            signal.signal(signal.SIGPIPE, before)
    return Result(code, out.getvalue(), err.getvalue())


def tiny_run(folder: Path, *options: object, batches: int = 12) -> Path:
    """A run on a few thousand tokens of the Markov source."""
    corpus = folder / "corpus.txt"
    if not corpus.exists():
        from unroll.corpus.synthetic import Markov

        corpus.write_text(Markov().text(3000))
    run = folder / "run"
    result = unroll("train", corpus, "--batches", batches, "--out", run, *TINY, *options)
    assert result.code == 0, result.err
    return run
