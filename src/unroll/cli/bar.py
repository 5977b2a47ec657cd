"""A download's progress."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from unroll.base.printable import one_line
from unroll.cli.screen import console

if TYPE_CHECKING:
    from rich.progress import Progress


class Bar:
    """A progress bar on a terminal; silence elsewhere."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.progress: Progress | None = None

    def __call__(self, done: int, total: int | None) -> None:
        """Show how far the download is."""
        if not sys.stderr.isatty():
            return
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        if self.progress is None:
            title = TextColumn("{task.description}", markup=False)
            columns = (title, BarColumn(), DownloadColumn(), TransferSpeedColumn())
            self.progress = Progress(*columns, console=console())
            self.progress.start()
            self.task = self.progress.add_task(one_line(self.title), total=total)
        self.progress.update(self.task, completed=done, total=total)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self.progress is not None:
            self.progress.stop()
