"""`unroll` and `python -m unroll`."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any

from unroll.base.limits import MEMORY, shortage
from unroll.base.printable import one_line, printable
from unroll.base.wording import shell_words


def main() -> None:
    """Run the command line; what goes wrong becomes one message and an exit code, never a traceback."""
    _open_what_is_closed()
    _take_any_text()
    try:
        from unroll.cli import app
        from unroll.cli.screen import guarded

        with guarded(), shell_words():
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
NO_SUCH_NAME = (errno.ENAMETOOLONG, errno.ELOOP)  # of a path that was given: no disk would take it


def _open_what_is_closed() -> None:
    """A command whose output was closed (`>&-`) does its work all the same, and no file of its own takes that place."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open to the end)


def _take_any_text() -> None:
    """What a model writes must not end the command: bytes that are no text pass as they are, others are spelt out."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape" if sys.stdout.encoding == "utf-8" else "backslashreplace")


def _exit(error: Exception) -> None:
    """Our exceptions and the framework's know their exit code; anything else is a bug and is shown whole."""
    code = getattr(error, "exit_code", None)
    if code is None and (lack := shortage(error)):
        _say(f"Not enough memory. {lack.said}" if lack.of == MEMORY else f"{lack.said}: raise that limit (ulimit -n).")
        sys.exit(1)
    if code is None and isinstance(error, OSError):
        _say(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        sys.exit(2 if error.errno in NO_SUCH_NAME else 1)
    if code is None:
        raise error
    if hasattr(error, "format_message"):
        _print(_mistake(error))
    else:
        for problem in getattr(error, "problems", (str(error),)):
            _say(problem)
    sys.exit(code)


def _mistake(error: Any) -> str:
    """A mistake that the framework found, in its own form; what it repeats of the command line stays on its line."""
    from unroll.cli import unknown_option

    context, said = getattr(error, "ctx", None), unknown_option.answer(error)
    if context is None:
        return f"Error: {one_line(said)}"
    if said == context.get_help():  # a command without any argument is answered with its help
        return str(said)
    hint = f"Try '{context.command_path} {context.help_option_names[0]}' for help."
    return f"{context.get_usage()}\n{hint}\n\nError: {one_line(said)}"


def _quit() -> None:
    _say("quit at once; what was saved before is intact.")
    sys.exit(INTERRUPTED)


def _say(message: str) -> None:
    _print(f"unroll: {one_line(message)}")


def _print(text: str) -> None:
    """The last words, said even where the command line itself could not be loaded."""
    with suppress(OSError):  # nobody reads on, or the terminal is gone
        print(printable(text), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
