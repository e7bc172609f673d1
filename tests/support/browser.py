"""A headless Chromium for tests, spoken to through a pipe (Chrome DevTools Protocol); nothing but a browser need be installed."""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE, wait_until

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")
KEYS = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def found() -> str | None:
    """The path of a browser; None where there is none. The variable CHROMIUM names one, too."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser with one page."""

    def __init__(self, profile: Path) -> None:
        (hears, self.write), (self.read, says) = os.pipe(), os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 100) for end in (hears, says)]  # no number that the browser's ends shall have
        self.process = subprocess.Popen(
            [
                str(found()), "--headless=new", "--no-sandbox",
                "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
                "--disable-background-networking", "--hide-scrollbars", "--allow-file-access-from-files=0",
                f"--user-data-dir={profile}", "about:blank",
            ],
            preexec_fn=lambda: (os.dup2(ends[0], 3), os.dup2(ends[1], 4)), pass_fds=(3, 4),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in (hears, says, *ends):
            os.close(end)
        self.number, self.rest, self.session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        target = next(t for t in self("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **given: Any) -> dict[str, Any]:
        """Say a command of the protocol, and wait for its result."""
        self.number += 1
        said = {"id": self.number, "method": method, "params": given}
        if self.session:
            said["sessionId"] = self.session
        os.write(self.write, json.dumps(said).encode() + b"\0")
        while (heard := self._hear()).get("id") != self.number:
            self.events.append(heard)
        assert "error" not in heard, heard
        return heard["result"]

    def _hear(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read], [], [], max(0, until - time.monotonic()))
            part = os.read(self.read, 1 << 20) if ready else b""
            assert part, "the browser says nothing"
            self.rest += part
        heard, self.rest = self.rest.split(b"\0", 1)
        return json.loads(heard)

    def do(self, script: str) -> Any:
        """The value of a script's expression in the page; a promise is waited for."""
        found = self("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str) -> Any:
        """Wait until an expression is true; returns its value."""
        wait_until(lambda: self.do(script), script)
        return self.do(script)

    def open(self, address: str) -> None:
        """Load a page of the explorer, and wait for its document."""
        self("Page.navigate", url="about:blank")
        self("Page.navigate", url=address)
        self.wait(READY)

    def key(self, name: str) -> None:
        """Press a key."""
        code = KEYS[name]
        for kind in ("keyDown", "keyUp"):
            self("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def size(self, width: int, height: int, scheme: str = "light") -> None:
        """Give the page a size, and the reader's choice of light or dark."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self) -> bytes:
        """What the page looks like, as PNG."""
        return base64.b64decode(self("Page.captureScreenshot")["data"])

    def requests(self) -> list[str]:
        """Addresses that were asked for so far."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """Errors and exceptions of scripts so far, and what the browser's console says is wrong."""
        wrong = [e for e in self.events if e.get("method") == "Runtime.exceptionThrown"]
        wrong += [e for e in self.events if e.get("method") == "Log.entryAdded" and e["params"]["entry"]["level"] == "error"]
        return [json.dumps(e["params"]) for e in wrong]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.write)
        os.close(self.read)


READY = "document.readyState == 'complete' && document.getElementById('document')?.getAttribute('aria-busy') == 'false'"


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser, closed at the end. profile: an empty folder for it."""
    opened = Browser(profile)
    try:
        yield opened
    finally:
        opened.close()
