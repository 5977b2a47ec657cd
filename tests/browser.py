"""A real browser, driven without a library: Chromium speaks its DevTools protocol over two pipes, JSON between NULs."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = (
    "No browser: the page is tested in a real one. Install Chromium (Debian, Ubuntu: apt-get install chromium), "
    f"which puts one of {', '.join(NAMES)} on the path."
)
# The browser reads commands from descriptor 3 and answers on 4: ours are moved there before it starts.
MOVE = """
import fcntl, os, sys
high = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(high[0], 3)
os.dup2(high[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
PATIENCE = 60.0  # seconds for any one answer, on a busy machine


class Browser:
    """One headless page. `troubles` gathers what the console complained of, `fetched` every address it asked for."""

    def __init__(self, profile: Path) -> None:
        program = next((path for path in map(shutil.which, NAMES) if path), None)
        assert program, MISSING
        to_browser, self._out = os.pipe()
        self._in, to_us = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", MOVE, str(to_browser), str(to_us), program, *options],
            pass_fds=(to_browser, to_us),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(to_us)
        self._rest, self._count = b"", 0
        self.troubles: list[str] = []
        self.fetched: list[str] = []
        self._loaded = False
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    _session: str | None = None

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the browser."""
        self.process.kill()
        self.process.wait()
        os.close(self._out)
        os.close(self._in)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer; note what happens meanwhile."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            self._note(answer)
        assert "error" not in answer, (method, answer["error"])
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"The browser did not answer within {PATIENCE:.0f} s."
            more = os.read(self._in, 1 << 20)
            assert more, "The browser ended by itself."
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        method, facts = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.fetched.append(facts["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.troubles.append(json.dumps(facts["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.troubles.append(json.dumps(facts["args"]))
        elif method == "Log.entryAdded":
            self.troubles.append(json.dumps(facts["entry"]))

    def open(self, page: Path) -> None:
        """Open a file and wait until it is there."""
        self._loaded = False
        self.call("Page.navigate", url=page.absolute().as_uri())
        while not self._loaded:
            self._note(self._next())

    def view(self, width: int, height: int, scheme: str = "light", media: str = "screen") -> None:
        """The window's size, light or dark, screen or paper."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait, frame by frame, for what a resize or a scroll brings about."""
        script = """
            new Promise((done) => {
              const begun = performance.now();
              const look = () => {
                const there = CONDITION;
                if (there || performance.now() - begun > 20000) done(Boolean(there));
                else requestAnimationFrame(look);
              };
              look();
            })
        """
        assert self.ask(script.replace("CONDITION", condition)), condition

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """mouseMoved, mousePressed, mouseReleased or mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """A rectangle."""
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, button="left", buttons=1, clickCount=1)
        self.mouse("mouseMoved", *end, button="left", buttons=1)
        self.mouse("mouseReleased", *end, button="left", clickCount=1)

    def press(self, key: str, code: int = 0) -> None:
        """A key, down and up."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """A picture of the window, or of the whole page."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))
