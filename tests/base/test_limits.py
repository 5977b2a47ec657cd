"""What the system lets a process have: memory, open files; and which errors say that there is no more of it."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from unroll.base import limits
from unroll.base.errors import RunError, SaveError

# Every way in which it was seen to be said, with `ulimit -v`, `ulimit -d` and `ulimit -u`.
OF_MEMORY = [
    MemoryError(),
    torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    OSError("libllvmlite.so: failed to map segment from shared object"),
    OSError("libllvmlite.so: cannot map zero-fill pages"),
    ImportError("_multiarray_umath.so: failed to map segment from shared object"),
    RuntimeError("can't start new thread"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"),
]
OTHERS = [
    ValueError("out of memory"),  # of all things, in somebody's text
    RuntimeError("shape mismatch"),
    OSError(errno.ENOSPC, "No space left on device"),
    FileNotFoundError(errno.ENOENT, "No such file or directory", "out of memory"),
    RunError("damaged"),
]


@pytest.mark.parametrize("error", OF_MEMORY, ids=repr)
def test_every_way_to_say_that_memory_ran_out_is_known_also_behind_another_error(error: Exception) -> None:
    assert limits.shortage(error) == (limits.MEMORY, str(error) or "MemoryError")
    for outer in (RuntimeError("cannot compile"), OSError("Could not find/load shared object file 'libllvmlite.so'")):
        outer.__context__, outer.__suppress_context__ = error, True
        assert limits.shortage(outer) == limits.shortage(error)


@pytest.mark.parametrize("error", OTHERS, ids=repr)
def test_other_errors_are_not_about_memory(error: Exception) -> None:
    assert limits.shortage(error) is None


def test_a_full_disk_is_no_lack_of_memory_whatever_went_before() -> None:
    full = SaveError("Could not save.")
    full.__context__ = OSError(errno.ENOSPC, "No space left on device")
    full.__context__.__context__ = MemoryError()
    assert limits.shortage(full) is None


def test_errors_that_stand_behind_each_other_come_to_an_end() -> None:
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one
    assert limits.shortage(one) is None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_known(number: int) -> None:
    missing = RunError("is not a run folder")
    missing.__context__ = OSError(number, os.strerror(number))
    shortage = limits.shortage(missing)
    assert shortage is not None
    assert shortage.of == limits.FILES


LEFT = """
import json, resource
from pathlib import Path
from unroll.base import limits

before = limits.memory_left()
words = dict(line.split()[:2] for line in Path("/proc/self/status").read_text().splitlines() if "kB" in line)
left = []
for name, line in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
    resource.setrlimit(name, (1024 * int(words[line]) + 10**9, resource.RLIM_INFINITY))
    left.append(limits.memory_left())
    resource.setrlimit(name, (resource.RLIM_INFINITY,) * 2)
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 100))
files = limits.files_left(), resource.getrlimit(resource.RLIMIT_NOFILE)[0], limits.files_left()
held = [open("/dev/null") for _ in range(20)]
print(json.dumps([before, left, files, limits.files_left()]))
"""


def test_what_is_left_under_the_limits_of_a_process_is_known_and_the_soft_one_on_files_is_raised() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, check=True)
    before, (space, data), (files, soft, again), fewer = json.loads(done.stdout)
    assert before > 1e15  # no limit
    assert 0.7e9 < space < 0.81e9  # a fifth of a gigabyte is for what is loaded later
    assert 0.9e9 < data < 0.95e9
    assert soft == 100
    assert 60 < files < 100 - limits.OTHER_FILES
    assert (again, fewer) == (files, files - 20)


def test_more_runs_than_files_can_be_open_are_refused_in_words_and_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "files_left", lambda: 0)
    limits.require_files(1)
    with pytest.raises(SaveError, match=r"2 runs side by side .* may open 0 more. Raise that limit \(ulimit -n\)"):
        limits.require_files(2)


@pytest.mark.parametrize("megabytes", [300, 700])
def test_a_command_that_has_too_little_memory_says_so_in_one_line(megabytes: int, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abcdefgh " * 200)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes * 10**6,) * 2)

    command = [sys.executable, "-m", "unroll", "train", str(tmp_path / "text.txt"), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("unroll: Not enough memory. ")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_sweep_of_more_runs_than_files_may_be_open_trains_them_all(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abcdefgh " * 200)
    sizes = {"hidden": 8, "dense": 16, "k1": 4, "k2": 8, "rows": 4, "test-tokens": 60, "threads": 1, "batches": 3}
    options = [
        word for name, value in {**sizes, "seeds": 100, "most": 100}.items() for word in (f"--{name}", str(value))
    ]
    text, out = str(tmp_path / "text.txt"), str(tmp_path / "s")
    command = [sys.executable, "-m", "unroll", "sweep", text, *options, "--device", "cpu", "--out", out]

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited)
    assert done.returncode == 0, done.stderr
    plan = json.loads((tmp_path / "s" / "plan.json").read_text())
    assert sum(len(fleet["runs"]) for fleet in plan["fleets"]) == 100
    assert all(len(fleet["runs"]) < 64 - limits.OTHER_FILES for fleet in plan["fleets"])
    assert "folders can be held open (ulimit -n)" in plan["fleets"][0]["why"]
