"""`unroll` and `python -m unroll`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; what was raised on purpose becomes one message and an exit code, never a traceback."""
    from unroll.cli import app
    from unroll.errors import InputError, UnrollError

    try:
        app()
    except UnrollError as error:
        problems = error.problems if isinstance(error, InputError) else (str(error),)
        for problem in problems:
            print(f"unroll: {problem}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("unroll: quit at once; what was saved before is intact.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away (as `head` does). Python would complain once more while it shuts down.
        sys.stderr.close()
        sys.exit(0)


if __name__ == "__main__":
    main()
