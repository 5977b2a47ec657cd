"""The page of a sweep of 20 runs in a real browser: how large it is, how fast it opens, whether it fits and is quiet.

    python benchmarks/report_page.py --sweep FOLDER

Trains the sweep on `stdlib` where FOLDER holds none (minutes), makes its page with every section, opens it in Chromium
at 375 and 1,440 pixels, light and dark, and draws docs/report.png and docs/report-phone.png. Writes
results/report/sweep_of_20.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import matplotlib.image as images
import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))
from browser import Browser  # noqa: E402

RECORD = ROOT / "results" / "report" / "sweep_of_20.json"
SWEEP = "stdlib --scheme 1,4 --k1 10,40 --k2 50 --seeds 5 --hidden 64 --dense 96 --batches 1200 --learning-rate 0.003 "
SWEEP += "--test-tokens 2000 --evaluations 16 --threads 1 --most 10 --quiet"
VIEWS = [(width, height, scheme) for width, height in ((375, 812), (1440, 900)) for scheme in ("light", "dark")]
LOADS = 9
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
PHONES = (("answer", "light"), ("text", "light"), ("units", "dark"))


def run(*arguments: str) -> float:
    """Run `unroll …`, and say how long it took."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "unroll", *arguments], check=True)
    return time.perf_counter() - began


def view(browser: Browser, page: Path, width: int, height: int, scheme: str) -> dict[str, Any]:
    """Open the page several times; everything on it is drawn before it is looked at."""
    browser.view(width, height, scheme)
    times = []
    for _ in range(LOADS):
        browser.open(page)
        times.append(round(float(browser.ask(DRAWN)), 1))
    browser.ask("document.documentElement.style.scrollBehavior = 'auto', dispatchEvent(new Event('beforeprint'))")
    return {
        "width": width,
        "scheme": scheme,
        "opened_ms": times,
        "median_ms": statistics.median(times),
        "scrolls_sideways": browser.ask("document.documentElement.scrollWidth > innerWidth"),
    }


def picture(browser: Browser, section: str, path: Path) -> None:
    """The window with a section at its top."""
    browser.ask(f"document.getElementById('{section}').scrollIntoView()")
    browser.ask(DRAWN)
    browser.screenshot(path)


def side_by_side(paths: list[Path], to: Path) -> None:
    """Several windows as one picture."""
    windows = [images.imread(path)[:, :-15, :3] for path in paths]  # without the scroll bar
    gap = np.full((windows[0].shape[0], 24, 3), 0.5)
    pieces = [piece for window in windows for piece in (window, gap)][:-1]
    images.imsave(to, np.hstack(pieces).astype(np.float64))


def main() -> None:
    """Measure, print, draw and record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sweep", type=Path, required=True)
    sweep = parser.parse_args().sweep
    if not sweep.exists():
        run("sweep", *SWEEP.split(), "--out", str(sweep))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:  # the browser may still write
        folder = Path(scratch)
        page = folder / "report.html"
        seconds = run("report", str(sweep), "--show", "all", "--out", str(page))
        with Browser(folder / "profile") as browser:
            views = [view(browser, page, *each) for each in VIEWS]
            version = browser.call("Browser.getVersion")["product"]
            browser.view(1440, 900, "light")
            browser.open(page)
            browser.ask(DRAWN)
            browser.screenshot(ROOT / "docs" / "report.png")
            phones = []
            for section, scheme in PHONES:
                view(browser, page, 375, 812, scheme)
                phones.append(folder / f"{section}.png")
                picture(browser, section, phones[-1])
            side_by_side(phones, ROOT / "docs" / "report-phone.png")
            complaints, fetched = list(browser.troubles), sorted(set(browser.fetched) - {page.as_uri()})
        record = {
            "sweep": f"unroll sweep {SWEEP}",
            "runs": len(list((sweep / "runs").iterdir())),
            "command": "unroll report SWEEP --show all",
            "made_s": round(seconds, 1),
            "bytes": page.stat().st_size,
            "views": views,
            "console": complaints,
            "fetched": fetched,
            "browser": version,
            "machine": f"{platform.machine()}, {platform.system()}",
        }
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    for each in views:
        print(
            f"{each['width']} pixels, {each['scheme']}: {each['median_ms']:.0f} ms, worst {max(each['opened_ms']):.0f}"
        )
    print(f"{record['runs']} runs, {record['bytes']:,} bytes; console: {complaints}; fetched: {fetched}")


if __name__ == "__main__":
    main()
