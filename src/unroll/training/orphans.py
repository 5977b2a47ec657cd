"""A run that was to begin from another's weights, and was killed before it had them."""

from __future__ import annotations

from collections.abc import Iterable

from unroll.base.errors import RunError
from unroll.runs.folder import RunFolder


def refuse(folders: Iterable[RunFolder]) -> None:
    """Refuse to begin them from nothing: nothing of them was trained, and their folders hold no weights."""
    wrong = [
        f"{folder.path} was to begin from another run's weights, and was killed before it had saved them. "
        "Nothing is lost. Delete the folder, and begin again with `unroll train --from`."
        for folder in folders
        if folder.experiment.parent is not None
    ]
    if wrong:
        raise RunError(*wrong)
