"""Chromium without a screen, spoken to over a pipe: DevTools messages are JSON, each ended by a
NUL.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0  # ends a hang; answers take milliseconds
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless_shell")
# descriptors 3 and 4 may be any of ours: out of the way with them first
_START = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def found() -> str | None:
    """The browser's program, None where there is none."""
    return next(
        filter(None, map(shutil.which, (os.environ.get("FASTFEED_CHROMIUM", ""), *NAMES))), None
    )


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own, which ends with the block."""
    program = found()
    assert program, "no Chromium; ask found() first"
    to_read, to_write = os.pipe(), os.pipe()  # it reads on descriptor 3, writes on 4
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", _START, str(to_read[0]), str(to_write[1]), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_read[0], to_write[1]),
        )
        os.close(to_read[0])
        os.close(to_write[1])
        try:
            yield Browser(to_read[1], to_write[0])
        finally:
            os.close(to_read[1])  # it ends when its input closes
            os.close(to_write[0])
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Browser:
    """Both ends of the pipe, and what has come through it."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._last = 0
        self._buffer = b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Ask, and wait for the answer. AssertionError with what the browser says is wrong."""
        self._last += 1
        asked = {"id": self._last, "method": method, "params": params} | (
            {"sessionId": session} if session else {}
        )
        data = json.dumps(asked).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            answer = self._message()
            if answer.get("id") == asked["id"]:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _message(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"the browser said nothing for {PATIENCE_S:.0f} s"
            more = os.read(self._read, 1 << 20)
            assert more, "the browser ended"
            self._buffer += more
        one, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(one)

    @contextmanager
    def tab(
        self,
        file: Path | str,
        width: int,
        height: int = 800,
        *,
        dark: bool = False,
        touch: bool = False,
    ) -> Iterator[Tab]:
        """A page of this size, loaded and drawn. `file` may be an address."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session, width, height)
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.call(f"{domain}.enable")
        tab.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if touch else 1,
            mobile=touch,
        )
        tab.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.call("Emulation.setEmulatedMedia", features=[scheme])
        tab.call("Page.navigate", url=file if isinstance(file, str) else file.resolve().as_uri())
        tab.wait("document.readyState === 'complete'")
        tab.wait(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>"
            " done(true))))"
        )
        try:
            yield tab
        finally:
            self.call("Target.closeTarget", targetId=target)


class Tab:
    """One page."""

    def __init__(self, browser: Browser, session: str, width: int, height: int) -> None:
        self._browser, self._session = browser, session
        self._width, self._height = width, height

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until the expression is true."""
        until = time.monotonic() + PATIENCE_S
        while not self.value(expression):
            assert time.monotonic() < until, f"never true: {expression}"

    def hover(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, x: float, y: float, to: float) -> None:
        self.call(
            "Input.dispatchMouseEvent",
            type="mousePressed",
            x=x,
            y=y,
            button="left",
            buttons=1,
            clickCount=1,
        )
        for at in (x + (to - x) / 2, to):
            self.call(
                "Input.dispatchMouseEvent", type="mouseMoved", x=at, y=y, button="left", buttons=1
            )
        self.call(
            "Input.dispatchMouseEvent", type="mouseReleased", x=to, y=y, button="left", clickCount=1
        )

    def tap(self, x: float, y: float) -> None:
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def picture(self, *, whole: bool = True) -> bytes:
        """PNG, of the whole page or of what is in view."""
        shot = self.call(
            "Page.captureScreenshot",
            captureBeyondViewport=whole,
            **({"clip": self._all()} if whole else {}),
        )
        return base64.b64decode(shot["data"])

    def _all(self) -> dict[str, float]:
        height = self.value("document.documentElement.scrollHeight")
        return {"x": 0, "y": 0, "width": self._width, "height": height, "scale": 1}

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and uncaught exceptions."""
        texts = []
        for event in self._mine():
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                texts.append(json.dumps(params["exceptionDetails"]))
            elif (
                event["method"] == "Runtime.consoleAPICalled" or event["method"] == "Log.entryAdded"
            ):
                texts.append(json.dumps(params))
        return texts

    def requests(self) -> list[str]:
        """Addresses that the page asked for, itself left out."""
        asked = [
            e["params"]["request"]["url"]
            for e in self._mine()
            if e["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in asked[1:] if not url.startswith("data:")]

    def _mine(self) -> list[dict[str, Any]]:
        return [event for event in self._browser.events if event.get("sessionId") == self._session]
