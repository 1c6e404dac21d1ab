"""Policies of a server: the rules of `[[policy]]`, and a function in code, in every binding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.core.errors import Forbidden, TooMany
from dragoman.core.model import Hook, Message, Role, Text
from dragoman.core.operations import (
    CancelTask,
    GetExtendedCard,
    GetTask,
    Invoke,
    ListTasks,
    Operation,
    Resolve,
    SendMessage,
    Watch,
)
from dragoman.core.peer import Context
from dragoman.security.call_policy import RulePolicy
from dragoman.settings import PolicyRule
from security.guarded_server import CANARY, open_server
from security.test_matrix import FORBIDDEN, MISSING, WAYS, alike, asked, opened

ALICE, BOB = Context(principal="alice", tenant="acme"), Context(principal="sso:bob")
MESSAGE = Message(message_id="m", role=Role.USER, parts=(Text("hi"),))
SEND = SendMessage(message=MESSAGE)


def allows(
    policy: RulePolicy,
    caller: Context,
    agent: str = "desk",
    op: Operation[Any] = SEND,
    skill: str = "",
) -> bool:
    try:
        policy(caller, agent, op, skill, "")
    except Forbidden:
        return False
    return True


def test_the_first_rule_that_fits_decides() -> None:
    policy = RulePolicy(
        [
            PolicyRule(operations=("CancelTask",), allow=False),
            PolicyRule(callers=("alice",), agents=("desk",)),
            PolicyRule(callers=("sso:*",), skills=("look", "read-*"), agents=("desk",)),
            PolicyRule(tenants=("acme",), agents=("archive-*",)),
        ]
    )
    assert allows(policy, ALICE)
    assert not allows(policy, ALICE, op=CancelTask(task_id="t"))
    assert not allows(policy, ALICE, "safe")
    assert not allows(policy, BOB), "a call that names no skill does not fit a rule about skills"
    assert allows(policy, BOB, skill="look")
    assert allows(policy, BOB, skill="read-aloud")
    assert not allows(policy, BOB, skill="looking")
    assert not allows(policy, BOB, op=CancelTask(task_id="t"), skill="look")
    assert allows(policy, ALICE, "archive-2")
    assert not allows(policy, BOB, "archive-2")


def test_operations_have_one_name_in_all_dialects() -> None:
    policy = RulePolicy([PolicyRule(operations=("SendMessage", "SubscribeToTask", "method:a/*"))])
    assert allows(policy, ALICE, op=Resolve(task_id="t", question="q", value=1))
    assert allows(policy, ALICE, op=Watch(task_id="t"))
    assert allows(policy, ALICE, op=Invoke(method="a/b"))
    assert not allows(policy, ALICE, op=Invoke(method="b/a"))
    assert not allows(policy, ALICE, op=ListTasks())
    assert not allows(policy, ALICE, op=GetTask(task_id="t"))
    assert not allows(policy, ALICE, op=GetExtendedCard())
    hook = Hook(url="https://x.example", task_id="", hook_id="")
    assert not allows(policy, ALICE, op=SendMessage(message=MESSAGE, hook=hook))


def test_a_rule_counts_the_calls_of_each_caller() -> None:
    policy = RulePolicy(
        [PolicyRule(agents=("desk",), calls_per_minute=2), PolicyRule(callers=("alice",))]
    )
    for _ in range(2):
        assert allows(policy, ALICE)
        assert allows(policy, BOB)
    for caller in (ALICE, BOB):
        with pytest.raises(TooMany) as refused:
            allows(policy, caller)
        assert int(refused.value.public["retry_after"]) > 0
    assert allows(policy, ALICE, "safe"), "the other rule has no limit"


async def test_a_policy_holds_for_every_operation_in_every_binding(tmp_path: Path) -> None:
    seen: set[str] = set()
    refuses = False

    def policy(caller: Context, agent: str, operation: Any, skill: str, task: str) -> bool:
        seen.add(f"{caller.principal} {agent} {skill}")
        return not refuses

    wrong: list[str] = []
    async with open_server(tmp_path, policy=policy) as server:
        task = await opened(server)
        refuses = True
        for way in WAYS:
            if way.binding == "MCP" or way.name == "/iat/ws":
                continue  # these only shake hands; `gateway/test_policy.py` calls
            where = f"{way.binding} {way.name}"
            about = task if way.about_a_task or way.op is SendMessage else ""
            status, body = await asked(way, server, server.token(), about)
            if status not in FORBIDDEN or CANARY in body:
                wrong.append(f"{where}: {status} {body[:200]}")
            if about:
                bob = server.token("bob")
                theirs = await asked(way, server, bob, about)
                missing = await asked(way, server, bob, MISSING)
                if alike(theirs) != alike(missing) or CANARY in theirs[1]:
                    wrong.append(f"{where} of another: {theirs} but missing is {missing}")
    assert wrong == []
    assert any(each.startswith("sso:alice ") for each in seen)


async def test_a_policy_in_code_may_be_async_and_rules_hold_beside_it(tmp_path: Path) -> None:
    async def policy(
        caller: Context, agent: str, operation: Any, skill: str, task: str
    ) -> bool | None:
        return None if caller.principal != "sso:carol" else False

    rules = (PolicyRule(callers=("sso:alice", "sso:carol"), operations=("SendMessage",)),)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    async with open_server(tmp_path, policy=policy, policy_rules=rules) as server:
        for user, status in {"alice": 200, "bob": 403, "carol": 403}.items():
            headers = {"authorization": f"Bearer {server.token(user)}", "a2a-version": "1.0"}
            sent = await server.client.post(
                "/message:send", json={"message": message}, headers=headers
            )
            assert sent.status_code == status, sent.text
            listed = await server.client.get("/tasks", headers=headers)
            assert listed.status_code == 403, listed.text
