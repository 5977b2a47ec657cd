"""`unroll` and `python -m unroll`."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

from unroll.limits import MEMORY, shortage


def main() -> None:
    """Run the command line; what goes wrong becomes one message and an exit code, never a traceback."""
    _open_what_is_closed()
    _take_any_text()
    try:
        from unroll.cli import app

        # The framework hands its own exits and mistakes over instead of ending the process itself.
        code = app(standalone_mode=False)
        if code == INTERRUPTED:
            _quit()
        sys.exit(code if isinstance(code, int) else 0)
    except KeyboardInterrupt:
        _quit()
    except Exception as error:
        _exit(error)


INTERRUPTED = 130


def _open_what_is_closed() -> None:
    """A command whose output was closed (`>&-`) does its work all the same, and no file of its own takes that place."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (open to the end)


def _take_any_text() -> None:
    """What a model writes must not end the command: bytes that are no text pass as they are, others are spelt out."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape" if stream.encoding == "utf-8" else "backslashreplace")


def _exit(error: Exception) -> None:
    """Our exceptions and the framework's know their exit code; anything else is a bug and is shown whole."""
    code = getattr(error, "exit_code", None)
    if code is None and (lack := shortage(error)):
        _say(f"Not enough memory. {lack.said}" if lack.of == MEMORY else f"{lack.said}: raise that limit (ulimit -n).")
        sys.exit(1)
    if code is None and isinstance(error, OSError):
        _say(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        sys.exit(1)
    if code is None:
        raise error
    if hasattr(error, "show"):
        error.show()
    else:
        for problem in getattr(error, "problems", (str(error),)):
            _say(problem)
    sys.exit(code)


def _quit() -> None:
    _say("quit at once; what was saved before is intact.")
    sys.exit(INTERRUPTED)


def _say(message: str) -> None:
    with suppress(OSError):  # nobody reads on, or the terminal is gone
        print(f"unroll: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
