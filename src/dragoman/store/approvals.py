"""Approvals: which are open, how an operator answers one, and the audit log of the decisions.

There is one model for all dialects: a task that waits with a question of the kind approval. An
answer counts once, for that question of that task, and only before it expires; `rules.add_input`
enforces this for callers and operators alike. A decision is written to the audit log before the run
receives it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import Struct

from dragoman.core.errors import ConfigError, TaskFinished, TaskNotFound
from dragoman.core.events import Ask
from dragoman.core.log import Logger
from dragoman.core.model import Json, Message, Role, State, Task, Text
from dragoman.core.questions import answer_value, question_in

from .interface import AdminFilter, Input, Row, Store
from .local.private_files import AuditFile, audit_line

log = Logger("approvals")

MOST = 1_000_000
YES, NO, UNCLEAR = "approved", "denied", "unclear"
VERDICTS = {True: YES, False: NO, None: UNCLEAR}


class Approval(Struct, frozen=True, kw_only=True):
    """An approval that waits for its answer."""

    id: str
    task_id: str
    question: str
    agent: str
    skill: str
    owner: str
    prompt: str
    details: Json = None
    asked_at: int = 0
    expires_at: int = 0


class Decision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the audit log."""

    at: str
    id: str
    task_id: str
    question: str
    verdict: str
    by: str
    answer: int = 0
    """The number of the input that decided. It identifies a line that was written twice because of
    a crash."""


def name_of(task_id: str, question: str) -> str:
    """Returns the short name of an approval, which depends only on its task and its question."""
    return hashlib.sha256(f"{task_id}\n{question}".encode()).hexdigest()[:12]


async def open_approvals(store: Store, agent: str | None = None) -> list[Approval]:
    """Returns the approvals of all callers that wait for an answer, oldest first. Without `agent`
    they are those of all agents."""
    found: list[Approval] = []
    for row in await store.find_in_all_scopes(AdminFilter(agent=agent), MOST):
        if row.asking is Ask.APPROVAL and row.state is State.INPUT_REQUIRED and row.resting:
            try:
                found.append(_approval(row, (await store.load(row.scope, row.task_id))[1]))
            except TaskNotFound:  # it was erased in the meantime
                continue
    return found


def _approval(row: Row, task: Task) -> Approval:
    asked = question_in(task.status.message, task.state)
    return Approval(
        id=name_of(row.task_id, row.question),
        task_id=row.task_id,
        question=row.question,
        agent=row.agent,
        skill=row.skill,
        owner=f"{row.tenant}/{row.principal}".lstrip("/"),
        prompt=asked.prompt,
        details=asked.details,
        asked_at=row.status_at,
        expires_at=row.expires_at,
    )


async def decide(store: Store, id: str, *, approved: bool, by: str) -> Approval:
    """Answers the open approval with this name, or with a name that begins like this.

    Raises `ConfigError` if there is not exactly one, and `Conflict` if it was answered or has
    expired."""
    which = [each for each in await open_approvals(store) if id and each.id.startswith(id)]
    if len(which) != 1:
        what = "several approvals" if which else "no open approval"
        raise ConfigError(f"There is {what} {id!r}; see `dragoman approvals list`.")
    (found,) = which
    (row,) = await store.find_in_all_scopes(AdminFilter(task_id=found.task_id), 1)
    words = Text("Approved." if approved else "Not approved.")
    message = Message(message_id=uuid4().hex, role=Role.USER, parts=(words,))
    said = Input(message=message, value=answer_value(approved), by=by)
    try:
        await store.add_input(row.scope, found.task_id, said, found.question)
    except TaskFinished:
        raise ConfigError(f"The task of approval {id!r} is over.") from None
    return found


class Audit:
    """The log of decisions: lines of JSON in a file to which lines are only added."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        """The file, or None if decisions only go to the ordinary log."""

    def check(self) -> None:
        """Raises `StoreUnavailable` if no decision can be recorded now, so that none is made."""
        if self.path is not None:
            AuditFile(self.path).check()

    def record(
        self, task_id: str, question: str, decision: bool | None, by: str, answer: int
    ) -> None:
        """Records a decision, and returns when it is on the disk. Raises `StoreUnavailable` if it
        could not be written."""
        line = Decision(
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            id=name_of(task_id, question),
            task_id=task_id,
            question=question,
            verdict=VERDICTS[decision],
            by=by or "unknown",
            answer=answer,
        )
        if self.path is not None:
            AuditFile(self.path).append(audit_line(line), durable=True)
        log.info(
            "An approval was decided",
            verdict=line.verdict,
            approval=line.id,
            task=task_id,
            by=line.by,
        )

    def read(self) -> Iterator[Decision]:
        """Yields all decisions, oldest first, each once."""
        if self.path is None or not self.path.exists():
            return
        seen: set[tuple[str, str, int]] = set()
        for line in self.path.read_bytes().splitlines():
            try:
                found = msgspec.json.decode(line, type=Decision)
            except msgspec.DecodeError:  # half a line
                continue
            key = (found.task_id, found.question, found.answer)
            if key not in seen:
                seen.add(key)
                yield found


def audit_of(store: str) -> Audit:
    """Returns the audit log beside the store at a URL. For a store in memory it has no file."""
    scheme, _, rest = store.partition(":")
    if scheme == "sqlite":
        return Audit(Path(rest.removeprefix("///") + ".approvals"))
    if scheme == "file":
        return Audit(Path(rest.removeprefix("//")) / "approvals.jsonl")
    return Audit()
