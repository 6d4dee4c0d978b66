"""A headless Chromium, controlled over a pipe by its own protocol: no driver has to be installed."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--enable-unsafe-swiftshader", "--remote-debugging-pipe"),  # WebGL in software, for the interactive brain
]


SELECTORS = "const one = (s) => document.querySelector(s), all = (s) => [...document.querySelectorAll(s)];"


def chromium() -> str:
    """Return the path of the browser; skip the test where there is none."""
    named = os.environ.get("BRIO_CHROMIUM")
    program = named or next((path for name in NAMES if (path := shutil.which(name))), None)
    if not program:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on the PATH and BRIO_CHROMIUM is not set")
    return program


class Browser:
    """One page in its own Chromium process, with its console messages and network requests."""

    def __init__(self, program: str) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="brio-browser-", ignore_cleanup_errors=True)
        # Chromium reads commands from descriptor 3 and answers on 4
        pipes = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
        command = ["sh", "-c", pipes, "sh", program, *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._rest, self._count, self.session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        targets = self._poll(
            lambda: [t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page"], 10
        )
        assert targets, "the browser opened no page"
        self.session = self.send("Target.attachToTarget", targetId=targets[0]["targetId"], flatten=True)["sessionId"]
        for room in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{room}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.terminate()
        self.profile.cleanup()

    def _message(self, deadline: float) -> dict[str, Any] | None:
        while b"\0" not in self._rest:
            if not select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            received = os.read(self.process.stdout.fileno(), 1 << 20)
            assert received, "the browser has gone"
            self._rest += received
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def send(self, method: str, timeout: float = 60.0, **params: Any) -> dict[str, Any]:
        """Send a command of the protocol and return its result."""
        self._count += 1
        command = {"id": self._count, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        self.process.stdin.write(json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while (message := self._message(deadline)) is not None:
            if message.get("id") == self._count:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)
        raise TimeoutError(f"{method}: no answer in {timeout} s")

    def wait(self, seconds: float) -> None:
        """Wait, and record the events of the page."""
        deadline = time.monotonic() + seconds
        while (message := self._message(deadline)) is not None:
            self.events.append(message)

    def _poll(self, look: Callable[[], Any], seconds: float) -> Any:
        """Look until there is something to see or the time is over; return what was seen last."""
        deadline = time.monotonic() + seconds
        while not (seen := look()) and time.monotonic() < deadline:
            self.wait(0.1)
        return seen

    def open(self, path: Path, width: int = 1280, height: int = 900) -> None:
        """Open a file and wait until it is loaded."""
        self.size(width, height)
        self.events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        assert self._poll(lambda: self.list_events("Page.loadEventFired"), 30), f"{path} does not load"

    def size(self, width: int, height: int) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def eval(self, script: str) -> Any:
        """Return the value of an expression in the page, in which one() and all() find elements."""
        block = f"{{ {SELECTORS} {script} }}"
        response = self.send("Runtime.evaluate", expression=block, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in response:
            raise RuntimeError(f"{script}: {response['exceptionDetails']}")
        return response["result"].get("value")

    def until(self, script: str, seconds: float = 30.0) -> bool:
        """Return whether an expression becomes true in time."""
        return bool(self._poll(lambda: self.eval(script), seconds))

    def enter(self, selector: str, value: str) -> None:
        """Type text into a field, or choose from one."""
        self.eval(f"one({selector!r}).value = {value!r}")
        for kind in ("input", "change"):
            self.eval(f"one({selector!r}).dispatchEvent(new Event('{kind}', {{bubbles: true}}))")

    @contextmanager
    def emulate(self, scheme: str, media: str = "") -> Iterator[None]:
        """Show pages on another medium, in a colour scheme."""
        try:
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            yield self.send("Emulation.setEmulatedMedia", media=media, features=features)
        finally:
            self.send("Emulation.setEmulatedMedia", media="", features=[])

    def list_events(self, method: str) -> list[dict[str, Any]]:
        """List what the page reported by one method of the protocol."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def check(self, path: Path) -> None:
        """Check that the console is empty, nothing but the page was requested, and no name was executed as code."""
        called = [e for e in self.list_events("Runtime.consoleAPICalled") if e["type"] in ("error", "assert")]
        logged = [e for e in self.list_events("Log.entryAdded") if e["entry"]["level"] == "error"]
        assert called + logged + self.list_events("Runtime.exceptionThrown") == []
        urls = [event["request"]["url"] for event in self.list_events("Network.requestWillBeSent")]
        own = ("data:", "blob:", "about:")
        assert [url for url in urls if not url.startswith(own)] == [path.resolve().as_uri()]
        assert self.eval("window.pwned") is None
