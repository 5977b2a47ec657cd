"""A Slurm of one node: munged, slurmctld and slurmd in a folder of their own, with ports of their own, no accounts."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
MISSING = (
    "No Slurm: {} is absent. The launcher slurm is tested on a real one. Install it (Debian, Ubuntu: apt-get install "
    "slurmctld slurmd slurm-client munge)."
)
PATIENCE = 60.0  # seconds until a daemon answers, on a busy machine
SLOTS = 3  # jobs at the same time, however many cores there are

CONF = """
ClusterName=unroll
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=10
NodeName={host} NodeAddr=127.0.0.1 CPUs={slots} RealMemory=1000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def cluster() -> Iterator[Path]:
    """Slurm while this is open; gives its configuration, for SLURM_CONF."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    absent = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    assert not absent, MISSING.format(absent[0])
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:  # a socket's path is short
        folder, daemons = Path(name), list[subprocess.Popen[bytes]]()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for inside in ("state", "spool"):
            (folder / inside).mkdir()
        conf = folder / "slurm.conf"
        host, user = socket.gethostname().partition(".")[0], getpass.getuser()
        conf.write_text(CONF.format(folder=folder, host=host, user=user, ports=_ports(2), slots=SLOTS))
        environment = {**os.environ, "PATH": path, "SLURM_CONF": str(conf)}
        files = [f"--{option}={folder}/munge.{end}" for option, end in (
            ("socket", "sock"), ("key-file", "key"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"),
        )]  # fmt: skip
        try:
            daemons.append(_started(["munged", "--foreground", "--force", *files], environment, folder))
            _until(["munge", f"--socket={folder}/munge.sock", "--no-input"], environment, folder)
            daemons.append(_started(["slurmctld", "-D"], environment, folder))
            _until(["scontrol", "ping"], environment, folder, "UP")
            daemons.append(_started(["slurmd", "-D"], environment, folder))
            _until(["sinfo", "--noheader", "--format=%t"], environment, folder, "idle")
            yield conf
        finally:
            with suppress(subprocess.SubprocessError):
                subprocess.run(["scancel", "--user", user], env=environment, timeout=PATIENCE, capture_output=True)
                _until(["squeue", "--noheader"], environment, folder, "")
            for daemon in reversed(daemons):
                daemon.terminate()
            for daemon in daemons:
                with suppress(subprocess.TimeoutExpired):
                    daemon.wait(PATIENCE)
                daemon.kill()
                daemon.wait()


def _ports(count: int) -> list[int]:
    """Ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _started(command: Sequence[str], environment: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    with open(folder / f"{command[0]}.out", "wb") as out:
        return subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT, cwd=folder)


def _until(command: Sequence[str], environment: dict[str, str], folder: Path, answer: str | None = None) -> None:
    """Ask until the answer comes; an empty one means that nothing is said."""
    end = time.monotonic() + PATIENCE
    while True:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode == 0 and (answer is None or (answer in done.stdout if answer else not done.stdout.strip())):
            return
        logs = "\n".join(f"{path.name}: {path.read_text(errors='replace')[-2000:]}" for path in folder.glob("*.out"))
        assert time.monotonic() < end, f"{' '.join(command)}: {done.stdout}{done.stderr}\n{logs}"
        time.sleep(0.2)
