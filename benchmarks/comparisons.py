"""Record what `unroll compare` and `unroll advise` print and answer, for docs/compare.md and docs/advise.md.

python benchmarks/comparisons.py compare stdlib stdlib --budget 10m
python benchmarks/comparisons.py advise english english.txt --budget 5m      (in the folder of the text)
python benchmarks/pages.py

The first word is the command, the second names the record in results/compare or results/advise/printed; the others are
the words of the command.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"
RECORDS = {"compare": RESULTS / "compare", "advise": RESULTS / "advice" / "printed"}
ANSWERS = {"compare": "compare.json", "advise": "advice.json"}
FOLDERS = {"compare": "compare", "advise": "advice"}  # where an answer goes unless somebody says otherwise


def main(verb: str, name: str, words: list[str]) -> None:
    """Run it in a new folder, and keep what was printed, the answer and how long it took by this clock."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "unroll", verb, *words, "--out", str(Path(folder) / "c")]
        began = time.monotonic()
        load = os.getloadavg()[0]
        # Both streams, in the order in which they are printed.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            print(line, end="", flush=True)
            printed.append(line.rstrip("\n").replace(f"{folder}/c", f"{FOLDERS[verb]}/{Path(words[0]).name}"))
        if process.wait() != 0:
            raise SystemExit(f"It ended with {process.returncode}.")
        seconds = time.monotonic() - began
        answer = json.loads((Path(folder) / "c" / ANSWERS[verb]).read_text("utf-8"))
        answer = answer["answer"] if verb == "advise" else answer
    content = {
        "command": shlex.join(["unroll", verb, *words]),
        "seconds": round(seconds, 1),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],  # processes that wanted a core, before and after
        "printed": printed,
        "answer": answer,
    }
    RECORDS[verb].mkdir(parents=True, exist_ok=True)
    (RECORDS[verb] / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


def names(verb: str = "compare") -> list[str]:
    """The records that there are."""
    return sorted(path.stem for path in RECORDS[verb].glob("*.json"))


def loaded(name: str, verb: str = "compare") -> dict[str, Any]:
    """One record."""
    content: dict[str, Any] = json.loads((RECORDS[verb] / f"{name}.json").read_text("utf-8"))
    return content


def block(name: str, verb: str = "compare") -> str:
    """What stands on the page: the command, how long it took, and all that it printed."""
    record = loaded(name, verb)
    budget = record["answer"]["asked"]["budget"]
    took = f"{record['seconds']:.0f} s of {budget:.0f}" if budget else f"{record['seconds']:.0f} s"
    before, after = record["load"]
    about = (
        f"{record['cores']} cores, {record['processor']}; {took}. Other work shared them: {before:.0f} processes "
        f"wanted a core when it began, {after:.0f} when it ended."
        if max(before, after) > 2 * record["cores"]
        else f"{record['cores']} cores, {record['processor']}; {took}."
    )
    return "\n".join([f"`{record['command']}` ({about})", "", "```text", *record["printed"], "```"])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
