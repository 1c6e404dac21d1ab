"""Checks how the agent stores webhooks.

They are set on finished tasks, so that there is little to deliver, and deleted at the end."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from ..check import V1, Broken, Level, Unknowable, check, given, need
from ..expected_errors import ANY, BAD_PARAMS, NO_PUSH, NOT_FOUND
from ..subject import NO_TASK, Case

HOOK = "https://example.com/doctor"
"""A public address that belongs to nobody (RFC 2606)."""


def flat(value: Any) -> dict[str, Any]:
    """Returns a config in the form of 1.0, whatever its own form."""
    if not isinstance(value, dict):
        raise Broken("the answer is no config")
    if "pushNotificationConfig" not in value:
        return value
    inner = value["pushNotificationConfig"]
    task = value.get("taskId") or str(value.get("name", "")).split("/")[1:2]
    return {"taskId": task[0] if isinstance(task, list) else task, **inner}


def configs(value: Any) -> list[Any]:
    """Returns the configs of a list; 0.3 over JSON-RPC has a bare array."""
    found = value.get("configs", []) if isinstance(value, dict) else value
    need(isinstance(found, list), "the answer is no list")
    return [flat(one) for one in found]


def declared(it: Case) -> None:
    """Raises `Unknowable` unless the agent declares webhooks."""
    given(it.agent.can("pushNotifications"), "the card does not declare push notifications")


def stored(it: Case) -> tuple[str, dict[str, Any]]:
    """Creates a task and a config for it."""
    declared(it)
    task_id = str(it.done["id"])
    config: dict[str, Any] = {"id": str(uuid4()), "url": HOOK, "token": "t-1"}
    return task_id, flat(it.accepted(it.ask("push.set", taskId=task_id, **config)))


def kept(it: Case) -> tuple[str, dict[str, Any]]:
    """Creates a task and a config for checks of something else, which are skipped if that fails."""
    try:
        return stored(it)
    except Broken as exc:
        raise Unknowable(f"there is no config to examine: {exc}") from None


@check("push.undeclared", "1.0 §3.3.4; 0.3 §8.2")
def undeclared(it: Case) -> None:
    """Without the capability, webhooks are refused as not supported."""
    given(not it.agent.can("pushNotifications"), "the card declares push notifications")
    it.refused(it.ask("push.set", taskId=NO_TASK, id="c", url=HOOK), NO_PUSH)


@check("push.set", "1.0 §3.1.7; 0.3 §7.5")
def put(it: Case) -> None:
    """Setting a webhook returns its id and url."""
    _, config = stored(it)
    need(config.get("url") == HOOK, f"url is {config.get('url')!r}")
    need(config.get("id"), "it has no id")


@check("push.get", "1.0 §3.1.8; 0.3 §7.6")
def get(it: Case) -> None:
    """A webhook that was set can be read."""
    task_id, config = kept(it)
    read = flat(it.accepted(it.ask("push.get", taskId=task_id, id=config["id"])))
    need(read.get("url") == HOOK and read.get("id") == config["id"], f"it is {read}")


@check("push.list", "1.0 §3.1.9; 0.3 §7.7")
def listed(it: Case) -> None:
    """A webhook that was set is listed."""
    task_id, config = kept(it)
    found = configs(it.accepted(it.ask("push.list", taskId=task_id)))
    need(config["id"] in [one.get("id") for one in found], f"{len(found)} are, but not this one")


@check("push.several", "1.0 §3.1.7; 0.3 §7.7")
def several(it: Case) -> None:
    """A task can have several webhooks."""
    task_id, one = kept(it)
    _, two = kept(it)
    ids = [config.get("id") for config in configs(it.accepted(it.ask("push.list", taskId=task_id)))]
    need(one["id"] in ids and two["id"] in ids and one["id"] != two["id"], f"there are {ids}")


@check("push.delete", "1.0 §3.1.10; 0.3 §7.8")
def delete(it: Case) -> None:
    """A deleted webhook no longer exists."""
    task_id, config = kept(it)
    it.accepted(it.ask("push.delete", taskId=task_id, id=config["id"]))
    rest = it.ask("push.list", taskId=task_id)
    if rest.refusal is None:
        ids = [one.get("id") for one in configs(rest.result)]
        need(config["id"] not in ids, "it is still listed")
    else:  # an agent that cannot list them is asked by id
        it.refused(it.ask("push.get", taskId=task_id, id=config["id"]), ANY)


@check("push.delete-twice", "1.0 §3.1.10", Level.SHOULD, versions=V1)
def delete_twice(it: Case) -> None:
    """Deleting a webhook twice does no harm."""
    task_id, config = kept(it)
    for _ in range(2):
        it.accepted(it.ask("push.delete", taskId=task_id, id=config["id"]))


@check("push.unknown-task", "1.0 §3.1.7; 0.3 §8.2")
def unknown_task(it: Case) -> None:
    """A webhook for an unknown task is refused."""
    declared(it)
    it.refused(it.ask("push.set", taskId=NO_TASK, id="c", url=HOOK), NOT_FOUND)


@check("push.unknown-config", "1.0 §3.1.8; 0.3 §7.6")
def unknown_config(it: Case) -> None:
    """An unknown webhook is not found."""
    task_id, _ = kept(it)
    it.refused(it.ask("push.get", taskId=task_id, id=NO_TASK), ANY)


@check("push.url", "1.0 §13.2; 0.3 §10.2", Level.SHOULD)
def url(it: Case) -> None:
    """A webhook whose url is not a valid URL is refused."""
    declared(it)
    task_id = it.done["id"]
    it.refused(it.ask("push.set", taskId=task_id, id="bad", url="not an address"), BAD_PARAMS)


@check("push.private", "1.0 §13.2; 0.3 §10.2", Level.SHOULD)
def private(it: Case) -> None:
    """A webhook at the cloud's metadata address is refused."""
    declared(it)
    bad = "http://169.254.169.254/latest/meta-data"
    it.refused(it.ask("push.set", taskId=it.done["id"], id="meta", url=bad), ANY)
