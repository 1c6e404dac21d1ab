"""Debian's headless Chromium, driven by the DevTools protocol, for tests that look at pages."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from waiting import until

PROGRAM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)
ANSWER_SECONDS = 120.0
HEIGHT = 900


class Tab:
    """The one tab of a browser."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._ids = socket, count(1)

    async def open(self, url: str, width: int) -> None:
        """Shows the page in a window of this width."""
        size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        await self.call("Page.enable")
        await self.call("Page.navigate", url=url)
        await self.run(
            "new Promise(done => document.readyState == 'complete'"
            " && location.href != 'about:blank' ? done() : addEventListener('load', done))"
        )

    async def run(self, script: str) -> Any:
        """Returns the value of an expression on the page; of a promise, its result."""
        found = await self.call(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def picture(self, x: float, y: float, width: float, height: float) -> bytes:
        """Returns a PNG of a part of the page. Equal pixels are equal bytes."""
        clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
        found = await self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    async def copy(self, selector: str) -> str:
        """Returns what is on the clipboard after somebody has selected this and pressed Ctrl-C."""
        origin = await self.run("location.origin")
        granted = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        await self.call("Browser.grantPermissions", origin=origin, permissions=granted)
        await self.run(
            f"getSelection().selectAllChildren(document.querySelector({json.dumps(selector)}))"
        )
        key = {"modifiers": 2, "key": "c", "code": "KeyC", "windowsVirtualKeyCode": 67}
        await self.call("Input.dispatchKeyEvent", type="rawKeyDown", commands=["copy"], **key)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **key)
        return await self.run("navigator.clipboard.readText()")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        id = next(self._ids)
        await self._socket.send(json.dumps({"id": id, "method": method, "params": params}))
        async with asyncio.timeout(ANSWER_SECONDS):
            while True:
                answer = json.loads(await self._socket.recv())
                if answer.get("id") == id:
                    assert "error" not in answer, (method, answer["error"])
                    return answer["result"]


@asynccontextmanager
async def chromium() -> AsyncIterator[Tab]:
    """Starts a browser and yields its tab."""
    if PROGRAM is None:
        pytest.skip("chromium is not installed, and `make browser` could not")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        flags = ["--headless", "--remote-debugging-port=0", f"--user-data-dir={folder}"]
        flags += ["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"]
        if os.getuid() == 0:
            flags.append("--no-sandbox")
        process = subprocess.Popen(  # noqa: ASYNC220  it starts at once
            [PROGRAM, *flags, "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            told = Path(folder, "DevToolsActivePort")  # the port, then the path of the browser
            port, path = await until(
                lambda: told.exists() and len(lines := told.read_text().split()) == 2 and lines
            )
            async with connect(f"ws://127.0.0.1:{port}{path}", max_size=None) as socket:
                targets = await Tab(socket).call("Target.getTargets")
            page = next(each for each in targets["targetInfos"] if each["type"] == "page")
            address = f"ws://127.0.0.1:{port}/devtools/page/{page['targetId']}"
            async with connect(address, max_size=None) as socket:
                yield Tab(socket)
        finally:
            # Its own group: the processes of its tabs end with it.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
