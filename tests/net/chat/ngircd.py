"""A real IRC server: ngircd of Debian."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ports import own_port
from waiting import wait_until

NGIRCD = shutil.which("ngircd", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
NEEDS_NGIRCD = pytest.mark.skipif(
    NGIRCD is None, reason="ngircd is not installed (make test does it)"
)


class Ngircd:
    """A server on a port of its own."""

    def __init__(self, folder: Path, *, password: str = "", penalties: bool = False) -> None:
        """With `penalties`, those who say much at once are slowed down, as by default."""
        self.port = own_port()
        self.log = folder / "ngircd.log"
        self._config = folder / "ngircd.conf"
        self._config.write_text(
            f"""
[Global]
Name = irc.test.example
Info = For tests
Listen = 127.0.0.1
Ports = {self.port}
MotdPhrase = Hello
{f"Password = {password}" if password else ""}
ServerUID = {os.getuid()}
ServerGID = {os.getgid()}
[Limits]
MaxConnectionsIP = 0
MaxNickLength = 20
{"" if penalties else "MaxPenaltyTime = 0"}
[Options]
DNS = no
Ident = no
PAM = no
"""
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert NGIRCD is not None
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [NGIRCD, "-n", "-f", str(self._config)], stdout=log, stderr=log
            )
        try:
            wait_until(self._answers)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        return "listening" in self.log.read_text().lower()
