"""Which files of a folder a choice leaves in, by their names."""

from __future__ import annotations

import fnmatch
import os
from dataclasses import dataclass

from unroll.base.errors import CorpusError
from unroll.corpus import folders
from unroll.corpus.folders import Entry
from unroll.corpus.recorded_size import Recorded


@dataclass(frozen=True)
class Choice:
    """Which files of a folder, and which of their bytes, belong to a corpus."""

    ext: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    ascii: bool = False
    encoding: str = "utf-8"


def listed(source: str, choice: Choice, recorded: Recorded | None = None) -> tuple[list[Entry], int]:
    """The files of a folder that a choice does not leave out, and how many of its folders cannot be listed."""
    root = os.path.join(source, "")
    failed: list[OSError] = []

    def left_out(path: str) -> bool:
        inside = path.removeprefix(root).replace(os.sep, "/")
        name = inside.rpartition("/")[2]
        return any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(inside, pattern) for pattern in choice.exclude)

    try:
        files = list(folders.walk(root, left_out, failed.append, recorded.most_names if recorded else None))
    except folders.TooManyNames:
        assert recorded
        raise recorded.unlike(source, f"more than {recorded.most_names:,} names in it") from None
    if failed and not files:
        raise CorpusError(f"{source} cannot be read: {failed[0].strerror}.")
    return [entry for entry in files if not choice.ext or entry.name.endswith(choice.ext)], len(failed)
