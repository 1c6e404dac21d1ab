"""What stands before an agent in the bench: our gateway, and nginx as the plainest of proxies."""

import asyncio
import os
import shutil
from pathlib import Path

from dragoman.security.server_secret import secret_for
from dragoman.store import open_store
from dragoman.xiaoyi.keys import KeyRing

from .stores import SECRET_KEY


def gateway(command: list[str], folder: Path, port: int, behind: int) -> list[str]:
    """Our gateway, before the agent at a port."""
    settings = folder / "dragoman.toml"
    settings.write_text(f'[agents.bench]\nurl = "http://127.0.0.1:{behind}"\n')
    return command


OPERATOR = "the-operator-of-the-bench"
"""The token of a gateway that lives for seconds."""


def registry(command: list[str], folder: Path, port: int, behind: int) -> list[str]:
    """Our gateway without any agents, in which an operator registers the agent at a port."""
    (folder / "dragoman.toml").write_text(
        "[server]\nallow_private = true\n"
        '[auth.operators]\ntype = "bearer"\n'
        '[auth.operators.callers.bench]\nsecret = { env = "BENCH_OPERATOR" }\n'
        'scopes = ["agents:admin"]\n'
    )
    return command


LINK_KEYS = ("bench-access-key", "bench-secret-key")


def linked_agents(count: int = 500) -> list[str]:
    """The ids of the agents that dial in."""
    return [f"ag-{number:04}" for number in range(count)]


def links(command: list[str], folder: Path, port: int, behind: int) -> list[str]:
    """Our gateway without any agents, whose store has the keys of those that dial in."""
    (folder / "dragoman.toml").write_text("")

    async def add_keys(url: str) -> None:
        store = open_store(url)
        await store.open()
        ring = KeyRing(store.link_keys, secret_for(url, SECRET_KEY))
        await ring.keep(*LINK_KEYS, linked_agents())
        await store.close()

    asyncio.run(add_keys(command[command.index("--store") + 1]))
    return command


NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "nginx"


def nginx(command: list[str], folder: Path, port: int, behind: int) -> list[str]:
    """nginx as a plain proxy before the agent at a port: nothing but to pass bytes on, at once."""
    paths = "".join(
        f"  {kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user}daemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log stderr;\n"
        "events { worker_connections 1024; }\n"
        f"http {{\n{paths}  access_log off;\n  keepalive_requests 1000000000;\n"
        f"  upstream agent {{ server 127.0.0.1:{behind}; keepalive 64;"
        " keepalive_requests 1000000000; }\n"
        f"  server {{\n    listen 127.0.0.1:{port};\n    location / {{\n"
        "      proxy_pass http://agent;\n      proxy_http_version 1.1;\n"
        '      proxy_set_header Connection "";\n      proxy_set_header Host $http_host;\n'
        "      proxy_buffering off;\n    }\n  }\n}\n"
    )
    return [command[0], "-p", str(folder), "-c", str(folder / "nginx.conf")]
