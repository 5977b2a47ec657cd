"""What travels to a job as bytes. Corpora that lie in files stay there: a job opens them where it runs."""

from __future__ import annotations

import io
import pickle
from typing import Any

from unroll.corpus.open_corpora import Library

IN_NO_FILE = ("", "-")  # the sources of texts in memory, and of standard input


def packed(thing: Any) -> bytes:
    """Something as bytes; libraries in it keep only those texts that are in no file."""
    content = io.BytesIO()
    _Packer(content, pickle.HIGHEST_PROTOCOL).dump(thing)
    return content.getvalue()


class _Packer(pickle.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        if not isinstance(thing, Library):
            return NotImplemented
        return Library, (tuple(corpus for corpus in thing.opened if corpus.source in IN_NO_FILE),)
