"""`kill -9` of the sub-agent's server between approval and action: one effect, one result."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman import State
from dragoman.core.events import Asked, StateChanged
from dragoman.core.lifecycle import FINAL
from dragoman.store.approvals import audit_of
from dragoman.testing.served import served
from iat.team import SECRET, WAYS, engine_host, joining, settings, story
from waiting import LIMIT, until

ROUNDS = 25 if os.environ.get("DRAGOMAN_FULL") else 1
VICTIM = Path(__file__).parent / "victim.py"


def life(folder: Path, host: str, dies: str) -> subprocess.Popen[bytes]:
    """One life of the sub-agent's server."""
    own = {"IAT_SECRET": SECRET, "VICTIM_FOLDER": str(folder), "VICTIM_DIES": dies}
    own |= {"DRAGOMAN_IAT_AGENT_ID": "victim"}
    keep = {k: v for k, v in os.environ.items() if not k.startswith("DRAGOMAN_")}
    command = [sys.executable, "-m", "dragoman", "serve", str(VICTIM), "--port", "0", "--no-grpc"]
    command += ["--iat-host", host, "--store", f"sqlite:///{folder}/victim.db"]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command, cwd=folder, env=keep | own, stdout=subprocess.DEVNULL, stderr=log
        )


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", ["approved", "paid"])
async def test_killed_between_approval_and_action(tmp_path: Path, way: str, where: str) -> None:
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with served(host := engine_host(patience=30), settings(folder, "engine")) as url:
            victim = life(folder, joining(url, way), where)
            try:
                await host.find("victim", LIMIT)
                buying = asyncio.create_task(story(host, "tea", True))
                mark = folder / f"{where}.reached"
                await until(mark.exists)
                victim.kill()
                victim.wait(10)
                victim = life(folder, joining(url, way), where)
                seen, task = await asyncio.wait_for(buying, 60)
            finally:
                victim.kill()
                victim.wait(10)
        assert task.state is State.COMPLETED, task.status
        assert task.text == "paid"
        events = [entry.event for entry in seen]
        assert sum(isinstance(event, Asked) for event in events) == 1
        ends = [e for e in events if isinstance(e, StateChanged) and e.state in FINAL]
        assert len(ends) == 1
        assert len(list((folder / "paid").iterdir())) == 1
        assert len(set((folder / "asked").read_text().split())) == 1
        decisions = list(audit_of(f"sqlite:///{folder}/victim.db").read())
        assert [each.verdict for each in decisions] == ["approved"]
        assert decisions[0].by.startswith("iat:engine")
