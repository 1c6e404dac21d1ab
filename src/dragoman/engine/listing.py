"""Lists a caller's tasks in pages, with signed page tokens."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
from msgspec.structs import replace

from dragoman.core.errors import BadParams
from dragoman.core.lifecycle import shortened
from dragoman.core.operations import ListTasks, TaskPage
from dragoman.store.interface import Filter, Scope, Store


async def list_tasks(store: Store, scope: Scope, secret: bytes, op: ListTasks) -> TaskPage:
    """Returns one page. The token of the next page is bound to the filters and the agent."""
    bound = (scope, op.context_id, op.state, op.since)
    which = Filter(
        context_id=op.context_id,
        state=op.state,
        since=op.since,
        before=read_page_token(secret, op.page_token, bound) if op.page_token else None,
    )
    found = await store.find(scope, which, op.page_size + 1)
    tasks = tuple(shortened(task, op.history_length) for task in found.tasks[: op.page_size])
    if not op.with_artifacts:
        tasks = tuple(replace(task, artifacts=()) for task in tasks)
    more = len(found.tasks) > op.page_size
    token = sign_page_token(secret, found.places[op.page_size - 1], bound) if more else ""
    return TaskPage(tasks=tasks, next_token=token, page_size=op.page_size, total=found.total)


_MAC = 16


def sign_page_token(secret: bytes, place: tuple[int, str], bound: object) -> str:
    """Returns a token for this position in this list."""
    body = msgspec.msgpack.encode(place)
    return urlsafe_b64encode(_mac(secret, body, bound) + body).decode().rstrip("=")


def read_page_token(secret: bytes, token: str, bound: object) -> tuple[int, str]:
    """Returns the position in a token. Raises `BadParams` if the token is forged or belongs to
    another list."""
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        mac, body = raw[:_MAC], raw[_MAC:]
        if hmac.compare_digest(mac, _mac(secret, body, bound)):
            return msgspec.msgpack.decode(body, type=tuple[int, str])
    except (ValueError, msgspec.MsgspecError):
        pass
    raise BadParams("The page token is not valid for this list", field="pageToken")


def _mac(secret: bytes, body: bytes, bound: object) -> bytes:
    return hmac.digest(secret, body + msgspec.msgpack.encode(bound), hashlib.sha256)[:_MAC]
