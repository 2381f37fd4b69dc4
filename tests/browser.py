"""A real browser for the tests: Chromium without a window, driven through its DevTools pipe."""

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

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE_S = 90.0


def chromium() -> str | None:
    """Where a Chromium is, if there is one on the PATH."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


FLAGS = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--hide-scrollbars",
    "--disable-extensions",
    "--mute-audio",
    "--force-color-profile=srgb",
]
# The pipe of the DevTools is file descriptors 3 and 4.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 100) for fd in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page. `errors` collects what its console complains about."""

    def __init__(self, program: str, profile: Path) -> None:
        read_in, self._out = os.pipe()
        self._in, write_out = os.pipe()
        command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(read_in), str(write_out), *command],
            pass_fds=(read_in, write_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_in)
        os.close(write_out)
        self._buffer, self._last, self._session = b"", 0, None
        self.errors: list[str] = []
        self.requests: list[str] = []
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        targets = self.do("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.do("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.do(f"{domain}.enable")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._in)
        os.close(self._out)

    def do(self, method: str, **parameters: object) -> dict:
        """Send a command, and wait for its answer."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._heard(answer)

    def _receive(self, deadline: float) -> dict:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._in, 1 << 20)
            assert piece, "the browser has gone"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _heard(self, event: dict) -> None:
        method, told = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(told["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
            self.errors.append(json.dumps(told["args"])[:500])
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.errors.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])

    def js(self, expression: str) -> object:
        """The value of an expression in the page; promises are waited for."""
        result = self.do(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, expression: str) -> object:
        """Wait until an expression is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not (value := self.js(expression)):
            assert time.monotonic() < deadline, f"{expression} does not come true; {self.errors}"
            time.sleep(0.05)
        return value

    def window(self, width: int, height: int = 900, dark: bool = False) -> None:
        self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address: str) -> None:
        self.errors.clear()
        self.requests.clear()
        self.do("Page.navigate", url=address)

    def drag(self, x0: float, y0: float, x1: float, y1: float) -> None:
        """Press at one place of the window, move to another, let go."""
        for kind, x, y in (
            ("mouseMoved", x0, y0),
            ("mousePressed", x0, y0),
            ("mouseMoved", (x0 + x1) / 2, (y0 + y1) / 2),
            ("mouseMoved", x1, y1),
            ("mouseReleased", x1, y1),
        ):
            pressed = {"button": "left", "buttons": 1, "clickCount": 1}
            self.do("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)
            time.sleep(0.05)

    def picture(self, file: Path) -> None:
        """A picture of the whole page."""
        size = self.do("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.do("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(shot["data"]))
