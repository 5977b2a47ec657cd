"""How long `unroll --help` takes, from the shell's point of view. Writes results/bench/startup.json."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

RECORD = Path(__file__).parent.parent / "results" / "bench" / "startup.json"
TIMES = 20


def seconds(command: list[str]) -> float:
    """Time one run, and throw its output away."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    """Measure, print and record."""
    command = [str(Path(sys.executable).parent / "unroll"), "--help"]
    seconds(command)  # once to fill the disk cache and write byte code
    measured = [seconds(command) for _ in range(TIMES)]
    record = {
        "command": "unroll --help",
        "median_s": round(statistics.median(measured), 4),
        "worst_s": round(max(measured), 4),
        "all_s": [round(value, 4) for value in measured],
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {platform.system()}",
    }
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    print(f"unroll --help: median {record['median_s']} s, worst {record['worst_s']} s of {TIMES}")


if __name__ == "__main__":
    main()
