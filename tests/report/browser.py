"""A headless Chromium, controlled over a pipe by its own protocol: no driver has to be installed."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--enable-unsafe-swiftshader",  # WebGL in software, for the interactive brain
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]


def chromium() -> str:
    """Return the path of the browser; skip the test where there is none."""
    named = os.environ.get("BRIO_CHROMIUM")
    program = named or next((path for name in NAMES if (path := shutil.which(name))), None)
    if not program:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on the PATH and BRIO_CHROMIUM is not set")
    return program


def _high(descriptor: int) -> int:
    """The same file under a number of at least 10."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


class Browser:
    """One page in its own Chromium process, with its console messages and network requests."""

    def __init__(self, program: str) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="brio-browser-", ignore_cleanup_errors=True)
        # Chromium reads commands from descriptor 3 and answers on 4; ours lie above, so that neither hides the other
        read, self._write, self._read, write = (_high(fd) for fd in (*os.pipe(), *os.pipe()))

        def as_chromium_wants_them() -> None:
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"],
            preexec_fn=as_chromium_wants_them,
            close_fds=False,  # none of Python's own is inherited
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._rest, self._count = b"", 0
        self.events: list[dict[str, Any]] = []
        self.session = None
        target = next(t for t in self._pages() if t["type"] == "page")
        self.session = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for room in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{room}.enable")

    def _pages(self) -> list[dict[str, Any]]:
        for _ in range(100):
            targets = self.send("Target.getTargets")["targetInfos"]
            if any(target["type"] == "page" for target in targets):
                return targets
            time.sleep(0.1)
        raise TimeoutError("the browser opened no page")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)
        os.close(self._read)
        os.close(self._write)
        self.profile.cleanup()

    def _message(self, deadline: float) -> dict[str, Any] | None:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            got = os.read(self._read, 1 << 20)
            if not got:
                raise ConnectionError("the browser has gone")
            self._rest += got
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def send(self, method: str, timeout: float = 60.0, **params: Any) -> dict[str, Any]:
        """Send a command of the protocol and return its result."""
        self._count += 1
        command = {"id": self._count, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        os.write(self._write, json.dumps(command).encode() + b"\0")
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

    def open(self, path: Path, width: int = 1280, height: int = 900) -> None:
        """Open a file and wait until it is loaded."""
        self.size(width, height)
        self.events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        for _ in range(300):
            self.wait(0.1)
            if any(e.get("method") == "Page.loadEventFired" for e in self.events):
                return
        raise TimeoutError(f"{path} does not load")

    def size(self, width: int, height: int) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def eval(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        response = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in response:
            raise RuntimeError(f"{script}: {response['exceptionDetails']}")
        return response["result"].get("value")

    def until(self, script: str, seconds: float = 30.0) -> bool:
        """Return whether an expression becomes true in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.eval(script):
                return True
            self.wait(0.2)
        return False

    @property
    def complaints(self) -> list[str]:
        """Errors of the console, and exceptions."""
        out = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                out.append(str(params["exceptionDetails"]))
            if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
                out.append(str(params["args"]))
            if method == "Log.entryAdded" and params["entry"]["level"] == "error":
                out.append(params["entry"]["text"])
        return out

    @property
    def requests(self) -> list[str]:
        """URLs that the page requested, without its own data and blobs."""
        urls = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("data:", "blob:", "about:"))]
