"""One rule for the ids that come from outside and are stored: of messages, conversations, tasks
that a message names or refers to, and webhooks, and idempotency keys.

A store need not hold everything that JSON can spell: PostgreSQL has no NUL, and its indexes have
a longest entry. A control character in an id also ends up in logs, terminals and headers. So such
an id is refused where a message is accepted, whatever the store is, and every caller gets the same
answer. Look-ups are not checked: ids from before this rule stay readable.
"""

from __future__ import annotations

from .errors import BadParams
from .operations import SendMessage

MAX_ID_LENGTH = 512
"""The maximum number of characters. With four bytes each they fit in an entry of PostgreSQL's
indexes (2704 bytes)."""


def is_id(text: str, max_length: int = MAX_ID_LENGTH) -> bool:
    """Returns whether this can be an id. `str.isprintable` refuses control characters, lone
    surrogates, and invisible characters, by which two ids that look the same would differ."""
    return 0 < len(text) <= max_length and text.isprintable()


def check_id(text: str, field: str) -> None:
    """Raises `BadParams` unless this can be an id, or is empty."""
    if text and not is_id(text):
        raise BadParams(
            f"An id has at most {MAX_ID_LENGTH} characters, all of them printable", field=field
        )


def check_ids(op: SendMessage) -> None:
    """Raises `BadParams` if a message brings an id that must not be stored."""
    message = op.message
    check_id(message.message_id, "message.messageId")
    check_id(message.context_id, "message.contextId")
    for task_id in message.references:
        check_id(task_id, "message.referenceTaskIds")
    check_id(op.open_as, "id")
    if op.hook is not None:
        check_id(op.hook.hook_id, "id")
