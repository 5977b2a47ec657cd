"""Pictures on disk, whatever their texts and numbers: no name is read as a formula, and files are whole or absent."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unroll.base import atomic_files
from unroll.base.errors import SaveError, UnrollError
from unroll.base.printable import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The most characters and lines of a text: a longer one leaves no room for the picture.
LONGEST, LINES = 160, 4


def label(name: str) -> str:
    """A name that fits into a picture: one printable line."""
    shown = one_line(name)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def save(draw: Callable[[], Figure], path: Path, **options: Any) -> None:
    """Draw a figure into the file `path`, in the format that its suffix names; `options` are those of savefig.

    A failure raises a SaveError and leaves no file.
    """
    try:
        content = _rendered(draw, path.suffix.lower().removeprefix("."), options)
    except UnrollError:
        raise
    except Exception as error:  # numbers that no axis takes, a damaged font, no memory
        said = label(str(error).strip().partition("\n")[0])
        reason = type(error).__name__ + (f": {said}" if said else "")
        raise SaveError(f"The picture {path} could not be drawn ({reason}).") from error
    atomic_files.write(path, content)


def _rendered(draw: Callable[[], Figure], form: str, options: dict[str, Any]) -> bytes:
    from matplotlib.text import Text

    with _plain():
        figure = draw()
        for text in figure.findobj(Text):
            if text.get_text() != (shown := _fitting(text.get_text())):
                text.set_text(shown)
        content = io.BytesIO()
        figure.savefig(content, format=form, **options)
        return content.getvalue()


def _fitting(text: str) -> str:
    """Shorten a text's lines, each of which may hold a name."""
    return "\n".join(map(label, text.split("\n")[:LINES]))


@contextmanager
def _plain() -> Iterator[None]:
    """Show a `$` or a backslash in a name as itself, whatever the user's matplotlibrc says about formulas.

    Warnings are off: a glyph that the font lacks is shown as a box, and a number that no axis can show is left out.
    """
    from matplotlib import rc_context

    with (
        rc_context({"text.parse_math": False, "text.usetex": False, "axes.formatter.use_mathtext": False}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
