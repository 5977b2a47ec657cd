"""Event files for TensorBoard, in the run's own folder: `tensorboard --logdir runs` shows every run below it.

A file is made anew at each begin, from the lines that stand. It says first that the run starts again at step 0: a
TensorBoard that is open drops the points of the file before it. TensorBoard keeps numbers in 32 bits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from unroll.base import plain_files
from unroll.training import trackers
from unroll.training.trackers import Line, Tracked

INSTALL = "pip install 'unroll-rnn[track]'"
TEXT = "settings"  # the tag of the configuration, on the page Text


def why_not() -> str | None:
    """Whether the package is there."""
    return trackers.missing("tensorboard", "The tracker tensorboard", INSTALL)


class _Events:
    """One event file. It is open only while something is written: a fleet has many."""

    def __init__(self, run: Tracked, lines: Sequence[Line]) -> None:
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._path = run.folder.event_files.new()
        start = SessionLog(status=SessionLog.START)
        first = [_event(file_version="brain.Event:2"), _event(step=0, session_log=start)]
        self._write([*first, _event(step=0, summary=_settings(run)), *map(_scalars, lines)])

    def add(self, line: Line) -> None:
        """Write its points."""
        self._write([_scalars(line)])

    def end(self, state: str) -> None:
        """Nothing is left to do."""

    def _write(self, events: Iterable[Any]) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        with plain_files.open_to_append(self._path) as file:
            writer = RecordWriter(file)
            for event in events:
                writer.write(event.SerializeToString())


begin = _Events


def _event(**what: Any) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event

    return Event(wall_time=time.time(), **what)


def _scalars(line: Line) -> Any:
    """The points of a line."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=name, simple_value=value) for name, value in trackers.points(line).items()]
    return _event(step=line["batch"], summary=Summary(value=values))


def _settings(run: Tracked) -> Any:
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
