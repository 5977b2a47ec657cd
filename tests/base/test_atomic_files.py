"""Files are whole or absent, and a damaged one is never read."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import resource
from pathlib import Path
from typing import Any

import killing
import pytest
import torch
from bomb import Bomb
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unroll.base import atomic_files
from unroll.base.errors import RunError, SaveError

TENSORS = {"weight": torch.arange(6.0), "count": torch.tensor([3])}
FACTS = {"batch": "3"}


def test_a_file_is_written_synced_read_back_renamed_and_then_its_folder_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, Any]] = []
    fsync, rename, read = os.fsync, os.replace, Path.read_bytes

    def synced(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        calls.append(("fsync", path.name if path.is_dir() else (path.name, path.stat().st_size)))
        fsync(handle)

    def renamed(source: Path, target: Path) -> None:
        calls.append(("rename", (source.name, target.name)))
        rename(source, target)

    def read_back(path: Path) -> bytes:
        calls.append(("read", path.name))
        return read(path)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr(Path, "read_bytes", read_back)
    atomic_files.write(tmp_path / "file", b"content")
    temporary = calls[1][1]
    assert temporary.startswith(f"file.{os.getpid():x}-")
    assert calls == [
        ("fsync", (temporary, 7)),  # all 7 bytes had left the process
        ("read", temporary),
        ("rename", (temporary, "file")),
        ("fsync", tmp_path.name),
    ]


def test_a_checkpoint_and_a_metrics_line_go_through_the_same_order(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    with killing.moments(lambda moment, batch: seen.append((moment, batch))):
        killing.train_until("conditional", tmp_path, 3)
    assert [name for name, batch in seen if batch == 3 and name in killing.BOUNDARIES] == [
        "written",
        "synced",
        "renamed",
        "folder synced",
        "checkpoint, no status",
        "metrics appended",
    ]


def test_what_is_read_back_differently_is_not_put_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    atomic_files.write(tmp_path / "file", b"old")
    whole = atomic_files.write_temporary
    monkeypatch.setattr(
        atomic_files, "write_temporary", lambda path, file, content: whole(path, file, b"N" + content[1:])
    )
    with pytest.raises(SaveError, match="read back"):
        atomic_files.write(tmp_path / "file", b"new")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"file": b"old"}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_refuses_leaves_the_old_file_alone_and_one_line(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    atomic_files.write(tmp_path / "file", b"old")

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(SaveError) as caught:
        atomic_files.write(tmp_path / "file", b"new")
    assert str(caught.value) == (
        f"Could not save {tmp_path / 'file'}: No space left on device. What was saved before is intact."
    )
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"file": b"old"}


def test_a_write_that_the_system_cuts_short_leaves_the_old_file_alone(tmp_path: Path) -> None:
    atomic_files.write(tmp_path / "file", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(SaveError, match="File too large"):
            atomic_files.write(tmp_path / "file", bytes(1_000_000))
        with pytest.raises(SaveError, match="File too large"):
            atomic_files.append(tmp_path / "lines", "x" * 1_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "lines"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "file", Path("/dev/null/file")):
        with pytest.raises(SaveError, match="Could not save"):
            atomic_files.write(path, b"content")
        with pytest.raises(SaveError, match="Could not write"):
            atomic_files.append(path, "line")


def test_sealed_tensors_and_facts_come_back_bit_for_bit(tmp_path: Path) -> None:
    odd = {
        "nan": torch.tensor([float("nan"), float("inf"), -0.0, 1e-45]),
        "none": torch.zeros(0, 3),
        "double": torch.rand(3, 2, dtype=torch.float64),
    }
    (tmp_path / "sealed").write_bytes(atomic_files.seal(odd, {"batch": "7", "zeros": "0" * 63}))
    tensors, facts = atomic_files.unseal(tmp_path / "sealed")
    assert facts == {"batch": "7", "zeros": "0" * 63}
    assert {n: (t.dtype, t.shape, t.numpy().tobytes()) for n, t in tensors.items()} == {
        n: (t.dtype, t.shape, t.numpy().tobytes()) for n, t in odd.items()
    }


def test_every_single_flipped_bit_of_a_sealed_file_is_refused(tmp_path: Path) -> None:
    content, path = atomic_files.seal(TENSORS, FACTS), tmp_path / "sealed"
    for position in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(RunError, match="damaged"):
            atomic_files.unseal(path)


def test_every_truncation_of_a_sealed_file_is_refused(tmp_path: Path) -> None:
    content, path = atomic_files.seal(TENSORS, FACTS), tmp_path / "sealed"
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(RunError, match=f"damaged \\({size} bytes"):
            atomic_files.unseal(path)


CHECKPOINT = atomic_files.seal(
    {f"layers.{i}": torch.rand(40, 30, generator=torch.Generator().manual_seed(i)) for i in range(3)}, FACTS
)
HEADER = 8 + int.from_bytes(CHECKPOINT[:8], "little")
# Where the damage begins: the header's length, the header, the tensors.
PLACES = st.one_of(st.integers(0, 7), st.integers(8, HEADER - 1), st.integers(HEADER, len(CHECKPOINT) - 1))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=PLACES, removed=st.integers(0, 64), added=st.binary(max_size=64))
def test_a_checkpoint_with_a_stretch_removed_added_or_written_over_is_refused(
    position: int, removed: int, added: bytes, tmp_path: Path
) -> None:
    damaged = CHECKPOINT[:position] + added + CHECKPOINT[position + removed :]
    path = tmp_path / "sealed"
    path.write_bytes(damaged)
    if damaged == CHECKPOINT:
        atomic_files.unseal(path)
        return
    with pytest.raises(RunError, match="damaged"):
        atomic_files.unseal(path)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.one_of(st.binary(max_size=300), st.binary(max_size=100).map(lambda b: len(b).to_bytes(8, "little") + b))
)
def test_any_bytes_at_all_are_refused_without_a_traceback(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "sealed").write_bytes(content)
    with pytest.raises(RunError, match="damaged"):
        atomic_files.unseal(tmp_path / "sealed")


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b'{"__metadata__": []}',
        b'{"__metadata__": {"sha256": 3}}',
        b'{"__metadata__": {"sha256": ""}}',
        b'{"__metadata__": {"sha256": "\\ud800"}}',
        b"[" * 100_000,
    ],
)
def test_a_header_of_another_form_is_refused(header: bytes, tmp_path: Path) -> None:
    (tmp_path / "sealed").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(RunError, match="damaged"):
        atomic_files.unseal(tmp_path / "sealed")


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "model.bin", "model.pkl", "weights.safetensors"])
def test_a_pickle_is_refused_whatever_its_name_and_its_code_is_not_run(name: str, tmp_path: Path) -> None:
    content = pickle.dumps(Bomb(tmp_path / "exploded"))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RunError, match="damaged" if name.endswith("safetensors") else "pickle, which can run code"):
        atomic_files.unseal(tmp_path / name)
    assert not (tmp_path / "exploded").exists()
    pickle.loads(content)
    assert (tmp_path / "exploded").exists()  # it would have


def test_on_a_mac_what_is_written_reaches_the_disk_by_the_call_that_does_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, asked = 51, []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", full, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda handle, command: asked.append(command))
    monkeypatch.setattr(os, "fsync", lambda handle: asked.append("fsync"))
    atomic_files.write(tmp_path / "file", b"content")
    atomic_files.append(tmp_path / "lines", "line")
    assert asked == [full] * 3  # the file, its folder, the line


def test_a_disk_that_refuses_a_macs_call_is_synced_as_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, command: int) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    asked: list[int] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    monkeypatch.setattr(os, "fsync", asked.append)
    atomic_files.append(tmp_path / "lines", "line")
    assert len(asked) == 1
