"""What clients cost: each calls from a process of its own the same server, ours."""

import asyncio
import os
from pathlib import Path

from .peers import OURS, ROOT, SUBJECTS, PythonPackages, Server
from .sample import CONNECTIONS, Pace, Sample

SCRIPTS = Path(__file__).resolve().parent / "clients"
LIMIT = 60.0


class ClientFailed(Exception):
    """A client ended with an error; the message is what it said."""


def command(name: str) -> list[str]:
    """How the client of that name is started."""
    if name == OURS:
        return [str(ROOT / ".venv/bin/python"), str(SCRIPTS / "dragoman_client.py")]
    packages = SUBJECTS[name].packages
    if not isinstance(packages, PythonPackages):
        raise ClientFailed(f"there is no client of {name} here")
    return [str(packages.python), str(SCRIPTS / "a2a_sdk_client.py")]


async def calls(server: Server, pace: Pace, name: str, what: str) -> Sample:
    """Echoes or streams, as many at once as other scenarios have connections.

    The CPU is the client's own. It runs on this process's core, which waits meanwhile.
    """
    told = (f"http://127.0.0.1:{server.port}", CONNECTIONS, pace.warm_up_share, pace.seconds, what)
    process = await asyncio.create_subprocess_exec(
        *command(name),
        *map(str, told),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ},
    )
    try:
        async with asyncio.timeout(LIMIT):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ClientFailed(err.decode(errors="replace")[-1000:])
    count, cpu, spent, p50, p99 = map(float, out.split())
    return Sample(
        cpu_us=cpu / count * 1e6,
        per_second=count / spent,
        p50_ms=p50 * 1e3,
        p99_ms=p99 * 1e3,
        load_share=0.0,
        requests=int(count),
    )
