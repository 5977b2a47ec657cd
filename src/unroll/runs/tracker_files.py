"""What trackers keep in a run's folder: event files for TensorBoard, and a key by which others know the run again.

    tensorboard/events.out.tfevents.1763586000.unroll    the next one has a later name, and empties this one
    tracking.json                                        a secret of this folder, of which the key is a hash

The key is a hash, so that a folder from a stranger cannot name an arbitrary run of yours elsewhere. Whatever else lies
in the folder `tensorboard` is not ours, and is left there.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
import time
from contextlib import suppress
from pathlib import Path

from unroll.base import atomic_files, plain_files, untrusted
from unroll.base.errors import RunError, SaveError
from unroll.base.untrusted import KILOBYTE

EVENTS, SECRET = "tensorboard", "tracking.json"
MOST = 4 * KILOBYTE  # bytes that the secret's file is read to have
DIGITS = 10  # of the seconds in a file's name
KEY_LETTERS = 16
_NAME = re.compile(rf"events\.out\.tfevents\.([0-9]{{{DIGITS}}})\.unroll")
_SECRET = re.compile(r"[0-9a-f]{32}")
_one_at_a_time = threading.Lock()  # two trackers may ask for the key at once


class EventFiles:
    """The event files of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def files(self) -> list[Path]:
        """Those of ours that are there, in order."""
        if not untrusted.is_folder(self.folder):
            return []
        ours = (path for path in self.folder.iterdir() if _NAME.fullmatch(path.name))
        return sorted(path for path in ours if untrusted.is_regular(path))

    def new(self) -> Path:
        """A new file, empty, in place of those before, of which the last one stays as an empty file."""
        before = self.files()
        times = [int(_NAME.sub(r"\1", path.name)) for path in before]
        # TensorBoard reads the files of a folder in the order of their names.
        moment = min(max(int(time.time()), *(each + 1 for each in times), 0), 10**DIGITS - 1)
        try:
            self.folder.mkdir(exist_ok=True)
            if not untrusted.is_folder(self.folder):
                raise OSError("it is a link, and links are not followed")
            for path in before[:-1]:
                path.unlink(missing_ok=True)
            for path in before[-1:]:
                # A TensorBoard that is open looks for the next file only where it can still open this one.
                atomic_files.cut(path, 0)
            path = self.folder / f"events.out.tfevents.{moment:0{DIGITS}}.unroll"
            plain_files.open_new(path).close()
            return path
        except OSError as error:
            raise SaveError(f"Could not write to {self.folder}: {error.strerror or error}.") from None

    def remove(self) -> None:
        """Delete the files, and the folder unless it holds something else."""
        for path in self.files():
            path.unlink(missing_ok=True)
        if untrusted.is_folder(self.folder):
            with suppress(OSError):
                self.folder.rmdir()


def key(path: Path) -> str:
    """The key of a run whose secret is in this file, which is made where there is none; or a RunError."""
    with _one_at_a_time:
        if not untrusted.present(path):
            content = untrusted.sealed({"secret": secrets.token_hex(16)})
            atomic_files.write(path, json.dumps(content).encode())
        try:
            secret = untrusted.unsealed(untrusted.parse_json(untrusted.read(path, MOST))).get("secret")
            if not isinstance(secret, str) or not _SECRET.fullmatch(secret):
                raise ValueError("it must hold a secret of 32 hexadecimal digits")
        except (OSError, ValueError) as error:
            words = getattr(error, "strerror", None) or error
            remedy = "Delete it, and the run is a new one to its trackers."
            raise RunError(f"{path} is damaged: {words}. {remedy}") from None
    return hashlib.sha256(f"unroll {secret}".encode()).hexdigest()[:KEY_LETTERS]
