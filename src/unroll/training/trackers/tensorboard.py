"""Event files for TensorBoard, in the run's own folder: `tensorboard --logdir runs` shows every run below it.

A file is made anew at each begin, from the lines that stand. It says first that the run starts again at step 0: a
TensorBoard that is open drops the points of the file before it. TensorBoard keeps numbers in 32 bits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from unroll.training import trackers
from unroll.training.trackers import Line, Tracked

INSTALL = "pip install 'unroll-rnn[track]'"
TEXT = "settings"  # the tag of the configuration, on the page Text


def why_not() -> str | None:
    """Whether the package is there."""
    return trackers.missing("tensorboard", "The tracker tensorboard", INSTALL)


class _Events:
    """One event file."""

    def __init__(self, run: Tracked, lines: Sequence[Line]) -> None:
        from tensorboard.compat.proto import event_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event: Any = event_pb2.Event
        self._writer = RecordWriter(run.folder.event_files.new())
        try:
            self._write(file_version="brain.Event:2")
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(step=0, session_log=start)
            self._write(step=0, summary=_as_text(run))
            for line in lines:
                self._add(line)
            self._writer.flush()
        except BaseException:
            with suppress(OSError):
                self._writer.close()
            raise

    def add(self, line: Line) -> None:
        """Write its points."""
        self._add(line)
        self._writer.flush()

    def end(self, state: str) -> None:
        """Close the file."""
        self._writer.close()

    def _add(self, line: Line) -> None:
        from tensorboard.compat.proto import summary_pb2

        values = [summary_pb2.Summary.Value(tag=tag, simple_value=one) for tag, one in trackers.points(line).items()]
        self._write(step=line["batch"], summary=summary_pb2.Summary(value=values))

    def _write(self, **what: Any) -> None:
        self._writer.write(self._event(wall_time=time.time(), **what).SerializeToString())


begin = _Events


def _as_text(run: Tracked) -> Any:
    """The configuration as a table."""
    from tensorboard.compat.proto import summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
    from tensorboard.plugins.text import metadata

    rows = "".join(f"| {name} | {_cell(value)} |\n" for name, value in run.settings.items())
    table = f"| setting | value |\n|---|---|\n{rows}"
    shape = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)])
    tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[table.encode()], tensor_shape=shape)
    about = metadata.create_summary_metadata(display_name=TEXT, description="")
    value = summary_pb2.Summary.Value(tag=TEXT, metadata=about, tensor=tensor)
    return summary_pb2.Summary(value=[value])


def _cell(value: Any) -> str:
    """A value in a table of Markdown, as code: nothing in it means anything to TensorBoard's page."""
    return "`" + str(value).replace("`", "'").replace("|", "¦").replace("\n", " ") + "`"
