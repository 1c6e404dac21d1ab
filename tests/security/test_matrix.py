"""Every operation, in every binding, with every credential that must not be enough.

The ways to ask come from the tables the server is made of, so a new method or route is in here by
itself. A refused caller learns nothing; another's task answers exactly like one that is missing.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from dragoman.core.operations import GetExtendedCard, GetTask, Invoke, ListTasks, SendMessage
from dragoman.security.route_policy import Policy
from security.guarded_server import (
    CANARY,
    HOOK,
    RECALL,
    RECEIVER,
    Asking,
    GuardedServer,
    all_ways,
    open_server,
)

REFUSED = {401, 16}
FORBIDDEN = {403, 7}
MISSING = "01a1e163-75f6-7000-86e0-000000000000"
LINK = "/openclaw/v1/ws/link"
"""Agents that dial in have keys of their own: tests/xiaoyi/test_server_refusals.py tries them."""
OLDEST = ("JSON-RPC 0.1", "a2a-go", "python-a2a")
WAYS = sorted(all_ways(), key=lambda way: way.binding in OLDEST and way.op is SendMessage)
"""In 0.1 a caller names its new task itself, so those come last: it is then the caller's own."""


async def opened(server: GuardedServer) -> str:
    """A task of alice's in acme that waits for her, with a webhook; and what she had kept."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": CANARY}]}
    hook = {"id": HOOK, "url": f"{RECEIVER}/{CANARY}"}
    headers = {"authorization": f"Bearer {server.token()}", "a2a-version": "1.0"}
    sent = await server.client.post("/message:send", json={"message": message}, headers=headers)
    assert sent.status_code == 200, sent.text
    task = str(sent.json()["task"]["id"])
    path = f"/tasks/{task}/pushNotificationConfigs"
    kept = await server.client.post(path, json=hook | {"taskId": task}, headers=headers)
    assert kept.status_code == 200, kept.text
    noted = await server.client.post(f"/{RECALL}", json={"note": CANARY}, headers=headers)
    assert noted.json() == CANARY, noted.text
    return task


async def asked(
    way: Asking, server: GuardedServer, token: str, task: str, tenant: str = ""
) -> tuple[int, str]:
    async with asyncio.timeout(60):
        status, body = await way.send(server, token, task, tenant)
    return status, body.replace(task, "ID") if task else body


def alike(reply: tuple[int, str]) -> tuple[int, str]:
    """A reply without the ids and times that differ every time (0.1 opens a task under any id)."""
    return reply[0], re.sub(
        r"~[0-9a-f]{16}|[0-9a-f-]{36}|[0-9-]{10}T[0-9:.]+Z|seconds: \d+|nanos: \d+", "*", reply[1]
    )


@pytest.mark.parametrize(
    "finished",
    [
        pytest.param(False, id="waiting"),
        pytest.param(True, id="finished", marks=pytest.mark.slow),  # hundreds of requests again
    ],
)
async def test_every_operation_in_every_binding_with_every_wrong_credential(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], finished: bool
) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    leaks: list[str] = []
    asked_at: set[str] = set()

    async def note(request: httpx2.Request) -> None:
        asked_at.add(request.url.path)

    async with open_server(tmp_path) as server:
        server.client.event_hooks = {"request": [note]}
        task = await opened(server)
        if finished:
            await answered(server, task)
        past = int(time.time()) - 3600
        bad = {
            "no": "",
            "wrong": server.token()[:-6] + "AAAAAA",
            "expired": server.token(exp=past, iat=past - 60),
        }
        others = {"other user": server.token("bob"), "other tenant": server.token(tenant="globex")}
        for way in WAYS:
            where = f"{way.binding} {way.name}"
            about = task if way.about_a_task or way.op is SendMessage else ""
            for what, token in bad.items():
                status, body = await asked(way, server, token, about)
                counts[way.binding, what] += 1
                if status not in REFUSED or CANARY in body or task in body:
                    leaks.append(f"{where} with {what}: {status} {body[:200]}")
            for what, token in others.items():
                counts[way.binding, what] += 1
                got = await asked(way, server, token, about)
                if CANARY in got[1] or HOOK in got[1] or task in got[1]:
                    leaks.append(f"{where} with {what}: {got}")
                if about:
                    missing = await asked(way, server, token, MISSING)
                    if alike(got) != alike(missing):
                        leaks.append(f"{where} with {what}: {got} but missing is {missing}")
            if way.tenants:
                counts[way.binding, "tenant of another"] += 1
                status, body = await asked(way, server, others["other tenant"], about, "acme")
                if status not in FORBIDDEN or CANARY in body:
                    leaks.append(f"{where} naming a tenant: {status} {body[:200]}")
        await untouched(server, task, finished=finished)
        forgotten = {
            path
            for path, methods in server.app.routes.items()
            for handler in methods.values()
            if getattr(handler, "policy", None) is Policy.CALLER and "{" not in path
        } - {*asked_at, LINK}
    with capsys.disabled():
        print(table(counts, len(leaks)))
    assert leaks[:5] == []
    assert not forgotten, f"routes that nobody asked at: {forgotten}"
    assert {way.binding for way in WAYS} >= {
        *("JSON-RPC 1.0", "JSON-RPC 0.3", "REST 1.0", "REST 0.3", "gRPC 1.0", "gRPC 0.3"),
        *("JSON-RPC 0.1", "a2a-go", "python-a2a", "paths of 0.2", "hybrid"),
    }
    own = {way.binding for way in WAYS if way.op is Invoke}
    assert own >= {*(f"JSON-RPC {v}" for v in ("1.0", "0.3", "0.1")), "REST 1.0", "REST 0.3"}
    assert own >= {"gRPC 1.0", "python-a2a"}


async def answered(server: GuardedServer, task: str) -> None:
    """Alice answers, and her task completes."""
    text = {"messageId": "n", "role": "ROLE_USER", "parts": [{"text": CANARY}], "taskId": task}
    headers = {"authorization": f"Bearer {server.token()}", "a2a-version": "1.0"}
    sent = await server.client.post("/message:send", json={"message": text}, headers=headers)
    assert sent.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED", sent.text


async def untouched(server: GuardedServer, task: str, *, finished: bool) -> None:
    """Alice finds her task as she left it; so the questions above were good ones."""
    headers = {"authorization": f"Bearer {server.token()}", "a2a-version": "1.0"}
    found = (await server.client.get(f"/tasks/{task}", headers=headers)).json()
    state = "TASK_STATE_COMPLETED" if finished else "TASK_STATE_INPUT_REQUIRED"
    assert found["status"]["state"] == state
    assert CANARY in str(found)
    hooks = await server.client.get(f"/tasks/{task}/pushNotificationConfigs", headers=headers)
    assert [each["id"] for each in hooks.json()["configs"]] == [HOOK]
    for way in WAYS:
        if way.op in (GetTask, ListTasks):
            status, body = await asked(
                way, server, server.token(), task if way.op is GetTask else ""
            )
            assert status in (0, 200), (way.name, status, body)
            told = CANARY in body or way.op is ListTasks or way.binding == "a2a-go"
            assert told, way.name  # a2a-go tells no messages
        if way.op is Invoke:
            status, body = await asked(way, server, server.token(), "")
            assert (status in (0, 200), CANARY in body) == (True, True), (way, status, body)
        if way.op is GetExtendedCard:
            status, body = await asked(way, server, server.token(scope="deep"), "")
            assert status in (0, 200), (way.name, status, body)
            assert "hidden" in body, way.name
            _, body = await asked(way, server, server.token(), "")
            assert "hidden" not in body, way.name


def table(counts: Counter[tuple[str, str]], leaks: int) -> str:
    """What was tried, as it goes into the notes."""
    bindings = sorted({binding for binding, _ in counts})
    columns = list(dict.fromkeys(what for _, what in counts))
    lines = ["", f"{'binding':<14}" + "".join(f"{each:>19}" for each in columns)]
    lines += [
        f"{binding:<14}" + "".join(f"{counts[binding, each]:>19}" for each in columns)
        for binding in bindings
    ]
    return "\n".join((*lines, f"{sum(counts.values())} requests, {leaks} leaks"))


async def test_every_route_has_a_policy_and_keeps_it(tmp_path: Path) -> None:
    async with open_server(tmp_path) as server:
        tried = 0
        for path, methods in server.app.routes.items():
            for method, handler in methods.items():
                which = getattr(handler, "policy", None)
                assert which in set(Policy), f"{method} {path} has no policy"
                if which is not Policy.CALLER:
                    continue
                method = "GET" if method in ("*", "websocket") else method
                reply = await server.client.request(method, path.replace("{id}", "x"))
                tried += 1
                if path == LINK:
                    assert reply.status_code == 404, "a server without keys has no such path"
                    continue
                assert reply.status_code == 401, (method, path, reply.text)
                assert reply.headers["www-authenticate"] == 'Bearer realm="Keeper"'
        assert tried >= 10


async def test_a_route_without_a_policy_is_refused(tmp_path: Path) -> None:
    async def naked(scope: object, receive: object, send: object) -> None:
        raise AssertionError("reached")

    async with open_server(tmp_path) as server:
        server.app.routes |= server.app.mounts[""].access.policed({"/new": {"GET": naked}})
        token = server.token()
        for headers in ({}, {"authorization": f"Bearer {token}"}):
            assert (await server.client.get("/new", headers=headers)).status_code == 403
