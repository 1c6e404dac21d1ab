"""A real Matrix homeserver: Synapse, in an environment of its own under `.peers`."""

from __future__ import annotations

import hashlib
import hmac
import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from interop.peers import SYNAPSE
from ports import own_port
from waiting import wait_until

NAME = "chat.test"
REGISTRATION = "for the tests only"


class Synapse:
    """A homeserver on a port of its own, with its data in a folder."""

    def __init__(self, folder: Path) -> None:
        self.port = own_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._log = folder / "synapse.log"
        generous = {"per_second": 1000, "burst_count": 1000}
        config = {
            "server_name": NAME,
            "pid_file": str(folder / "synapse.pid"),
            "listeners": [
                {
                    "port": self.port,
                    "tls": False,
                    "type": "http",
                    "bind_addresses": ["127.0.0.1"],
                    "resources": [{"names": ["client"]}],
                }
            ],
            "database": {"name": "sqlite3", "args": {"database": str(folder / "synapse.db")}},
            "media_store_path": str(folder / "media"),
            "signing_key_path": str(folder / "signing.key"),
            "registration_shared_secret": REGISTRATION,
            "report_stats": False,
            "trusted_key_servers": [],
            "suppress_key_server_warning": True,
            "macaroon_secret_key": "m",
            "form_secret": "f",
            "max_upload_size": "2M",
            "rc_message": generous,
            "rc_login": {"address": generous, "account": generous, "failed_attempts": generous},
            "rc_joins": {"local": generous},
            "rc_registration": generous,
            "rc_invites": {"per_room": generous, "per_user": generous, "per_issuer": generous},
            "rc_room_creation": generous,
            "rc_media_create": generous,
        }
        (folder / "homeserver.yaml").write_text(json.dumps(config))  # JSON is YAML
        self._process: subprocess.Popen[bytes] | None = None
        self._admin = ""

    def start(self) -> None:
        home = SYNAPSE.ready()
        command = [*SYNAPSE.start(home), "-c", str(self._folder / "homeserver.yaml")]
        if not (self._folder / "signing.key").exists():
            subprocess.run([*command, "--generate-keys"], check=True, capture_output=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)
        try:
            wait_until(self._answers)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def user(self, name: str, *, admin: bool = False) -> str:
        """Registers a user and returns an access token."""
        nonce = self.call("GET", "/_synapse/admin/v1/register")["nonce"]
        fields = (nonce, name, name, "admin" if admin else "notadmin")
        mac = hmac.new(REGISTRATION.encode(), "\0".join(fields).encode(), hashlib.sha1)
        body = {
            "nonce": nonce,
            "username": name,
            "password": name,
            "admin": admin,
            "mac": mac.hexdigest(),
        }
        return str(self.call("POST", "/_synapse/admin/v1/register", body)["access_token"])

    def limit(self, name: str, per_second: int, burst: int) -> None:
        """Limits how fast a user may speak."""
        self._admin = self._admin or self.user("operator", admin=True)
        path = f"/_synapse/admin/v1/users/@{name}:{NAME}/override_ratelimit"
        limits = {"messages_per_second": per_second, "burst_count": burst}
        self.call("POST", path, limits, self._admin)

    def room(self, token: str, *, alias: str = "", encrypted: bool = False) -> str:
        """Creates a room that everybody may join."""
        state = {"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
        body = {
            "preset": "public_chat",
            "room_alias_name": alias or None,
            "initial_state": [state] if encrypted else [],
        }
        body = {key: value for key, value in body.items() if value}
        return str(self.call("POST", "/_matrix/client/v3/createRoom", body, token)["room_id"])

    def call(self, method: str, path: str, body: object = None, token: str = "") -> Any:
        """Asks the server as another client would."""
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, method=method)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-4000:]
        try:
            return bool(self.call("GET", "/_matrix/client/versions"))
        except (urllib.error.URLError, OSError):
            return False
