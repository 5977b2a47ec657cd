"""What a release holds: the wheel and the source distribution, built here with no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from paths import ROOT

pytestmark = pytest.mark.slow
BUILD = "from setuptools import build_meta; build_meta.build_{what}({out!r})"
SOURCE = (
    "src",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "MANIFEST.in",
    "CHANGELOG.md",
    "SECURITY.md",
    "constraints.txt",
)


def built(source: Path, what: str, out: Path) -> Path:
    """The one file that a build makes."""
    out.mkdir()
    command = [sys.executable, "-c", BUILD.format(what=what, out=str(out))]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.iterdir()
    return path


def files(package: Path) -> set[str]:
    """The package's own files below a folder, by their names from that."""
    found = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(package.parent).as_posix() for path in found}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: building writes beside what is built."""
    folder = tmp_path_factory.mktemp("source")
    for name in SOURCE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
        else:
            shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source, "wheel", tmp_path_factory.mktemp("wheel") / "out")


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == files(ROOT / "src" / "unroll")
    assert {Path(name).suffix for name in names} >= {".py", ".cu", ".html", ".js", ".css"}
    assert "unroll/py.typed" in names


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, source: Path, tmp_path: Path) -> None:
    archive = built(source, "sdist", tmp_path / "out")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert files(unpacked / "src" / "unroll") == files(ROOT / "src" / "unroll")
    again = built(unpacked, "wheel", tmp_path / "again")
    assert again.name == wheel.name
    contents = [{name: zipfile.ZipFile(path).read(name) for name in _compared(path)} for path in (wheel, again)]
    assert contents[0] == contents[1]


def test_the_package_works_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")

    def unroll(*arguments: str) -> str:
        command = [sys.executable, "-m", "unroll", *arguments]
        environment = os.environ | {"PYTHONPATH": str(tmp_path / "site"), "UNROLL_CACHE": str(tmp_path / "cache")}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    tiny = ("--hidden", "16", "--dense", "16", "--rows", "4", "--k1", "10", "--k2", "20", "--threads", "1")
    unroll("train", "brackets", *tiny, "--batches", "20", "--test-tokens", "500", "--out", "run")
    assert len(unroll("sample", "run", "--length", "50")) >= 50
    unroll("report", "run", "--out", "report.html")
    assert "</html>" in (tmp_path / "report.html").read_text("utf-8")


def _compared(wheel: Path) -> list[str]:
    # RECORD lists the others' hashes.
    return sorted(name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/RECORD"))
