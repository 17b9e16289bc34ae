"""A headless Chromium that types, clicks and looks: DevTools protocol over a pipe, with the standard library only."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import time
from pathlib import Path
from typing import Any

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)

#: What is faint, unnamed or too wide on a page (contrast as WCAG 2 AA has it).
LOOK = (Path(__file__).parent / "look.js").read_text(encoding="utf-8")


class Browser:
    """One tab."""

    def __init__(self, folder: Path) -> None:
        assert PROGRAM is not None
        there, self._out = os.pipe()
        self._in, back = os.pipe()
        words = [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-extensions", "--no-first-run",
                 f"--user-data-dir={folder / 'profile'}", "--disable-background-networking", "--disable-sync",
                 "--hide-scrollbars", "--remote-debugging-pipe", "about:blank"]  # fmt: skip
        # The browser reads from 3 and writes to 4; the ends of the pipes have other numbers.
        high = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 50) for one in (there, back)]
        actions = [(os.POSIX_SPAWN_DUP2, one, number) for number, one in enumerate(high, start=3)]
        silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        self._process = os.posix_spawn(PROGRAM, words, os.environ, file_actions=[*actions, *silent])
        for one in (there, back, *high):
            os.close(one)
        self._number, self._left, self._session = 0, b"", ""
        self.loads = 0
        #: Addresses that were asked for, and what the browser complained about.
        self.asked: list[str] = []
        self.complaints: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)

    def close(self) -> None:
        """End the browser."""
        try:
            self._session = ""
            self.send("Browser.close")
        except (OSError, EOFError):
            pass
        os.close(self._out)
        os.close(self._in)
        os.waitpid(self._process, 0)

    def send(self, method: str, **values: Any) -> dict[str, Any]:
        """One command and its answer."""
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": values}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._number:
                assert "error" not in told, (method, told)
                result: dict[str, Any] = told["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._in], [], [], 60)
            part = os.read(self._in, 1 << 16) if ready else b""
            if not part:
                raise EOFError("the browser says nothing any more")
            self._left += part
        one, _, self._left = self._left.partition(b"\0")
        told: dict[str, Any] = json.loads(one)
        values = told.get("params", {})
        match told.get("method"):
            case "Page.loadEventFired":
                self.loads += 1
            case "Network.requestWillBeSent":
                self.asked.append(values["request"]["url"])
            case "Log.entryAdded":
                if values["entry"]["level"] in ("warning", "error"):
                    self.complaints.append(values["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(values["exceptionDetails"]))
        return told

    def size(self, width: int, height: int = 1000, *, dark: bool = False) -> None:
        """The window, and whether its user likes it dark."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def script(self, text: str) -> Any:
        """What an expression gives."""
        told = self.send("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def go(self, address: str) -> None:
        """Open an address, and wait until it is there."""
        before = self.loads
        self.send("Page.navigate", url=address)
        self.loaded(before)

    def loaded(self, before: int) -> None:
        """Wait until one page more was loaded than ``before``."""
        while self.loads == before:
            self._next()

    def fill(self, selector: str, text: str) -> None:
        """Type into a field."""
        self.script(f"document.querySelector({json.dumps(selector)}).focus()")
        self.send("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click on what leads to another page, and wait for it."""
        before = self.loads
        self.script(f"document.querySelector({json.dumps(selector)}).click()")
        self.loaded(before)

    def press(self, key: str, code: int, *, loads: bool = False) -> None:
        """A key of the keyboard."""
        before = self.loads
        text = "\r" if key == "Enter" else ""
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text
            )
        if loads:
            self.loaded(before)

    @property
    def words(self) -> str:
        """The text that can be read."""
        return str(self.script("document.body.innerText"))

    @property
    def place(self) -> str:
        """Path and query of the page."""
        return str(self.script("location.pathname + location.search"))

    def until(self, expression: str) -> None:
        """Wait for a page that changes by itself."""
        for _ in range(200):
            if self.script(expression):
                return
            time.sleep(0.05)
        raise AssertionError(f"never: {expression}")

    def look(self) -> dict[str, Any]:
        """Facts on how the page looks; see ``look.js``."""
        found: dict[str, Any] = self.script(LOOK)
        return found

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """A screenshot."""
        told = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(told["data"]))
