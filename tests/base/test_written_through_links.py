"""What writes files writes through no link, whatever stands in their place."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from unroll.base import atomic_files
from unroll.base.errors import SaveError

PRECIOUS = b"precious\n"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """Somebody's own file."""
    path = tmp_path / "diary.txt"
    path.write_bytes(PRECIOUS)
    return path


def test_a_line_is_added_through_no_link_and_no_file_is_made_through_one(tmp_path: Path, precious: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for target in (precious, tmp_path / "made by following a link"):
        path.symlink_to(target)
        with pytest.raises(SaveError, match=r"metrics\.jsonl"):
            atomic_files.append(path, "a line")
        path.unlink()
    assert precious.read_bytes() == PRECIOUS
    assert not (tmp_path / "made by following a link").exists()


def test_a_line_is_added_to_no_file_that_has_a_second_name(tmp_path: Path, precious: Path) -> None:
    os.link(precious, tmp_path / "metrics.jsonl")
    with pytest.raises(SaveError, match="second name"):
        atomic_files.append(tmp_path / "metrics.jsonl", "a line")
    assert precious.read_bytes() == PRECIOUS


def test_a_file_is_cut_through_no_link_and_one_with_a_second_name_becomes_a_copy(
    tmp_path: Path, precious: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.symlink_to(precious)
    with pytest.raises(SaveError):
        atomic_files.cut(path, 3)
    path.unlink()
    os.link(precious, path)
    atomic_files.cut(path, 3)
    assert path.read_bytes() == PRECIOUS[:3]
    assert precious.read_bytes() == PRECIOUS


def test_a_file_is_written_in_the_place_of_a_link(tmp_path: Path, precious: Path) -> None:
    path = tmp_path / "status.json"
    path.symlink_to(precious)
    atomic_files.write(path, b"ours")
    assert path.read_bytes() == b"ours"
    assert not path.is_symlink()
    assert precious.read_bytes() == PRECIOUS


def test_a_temporary_file_is_new_even_where_its_name_was_guessed(
    tmp_path: Path, precious: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda size: "00" * size)
    path = tmp_path / "status.json"
    guessed = path.with_name(f"status.json.{os.getpid():x}-00000000.partial")
    for make in (guessed.symlink_to, guessed.hardlink_to):
        make(precious)
        with pytest.raises(SaveError):
            atomic_files.write(path, b"ours")
        guessed.unlink()
    assert precious.read_bytes() == PRECIOUS
    assert not path.exists()
