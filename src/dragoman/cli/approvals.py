"""`dragoman approvals`: what waits for a yes or a no, and who decided what."""

from __future__ import annotations

import getpass
import json
import sys
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from ..store import Store
from ..store.approvals import NO, YES, Approval, audit_of, decide, open_approvals
from .outbox import StoreUrl, opened, place_of, shown_time

approvals = App(name="approvals", help="List and answer what waits for approval.")

Id = Annotated[str, Parameter(help="The name that `list` shows, or the beginning of it.")]
AsJson = Annotated[bool, Parameter(name="--json", help="One JSON object per line.", negative=())]


@approvals.command(name="list")
def listed(*, as_json: AsJson = False, store: StoreUrl = None) -> None:
    """List what waits for a yes or a no, oldest first."""

    async def look(found: Store) -> list[Approval]:
        return await open_approvals(found)

    waiting = opened(store, look)
    if not waiting and not as_json:
        print("Nothing waits for approval.")
    for one in waiting:
        print(msgspec.json.encode(one).decode() if as_json else _line(one))


@approvals.command
def approve(*ids: Id, store: StoreUrl = None) -> None:
    """Say yes: the action of that one question may go on."""
    _decide(ids, store, approved=True)


@approvals.command
def deny(*ids: Id, store: StoreUrl = None) -> None:
    """Say no."""
    _decide(ids, store, approved=False)


@approvals.command(name="log")
def logged(*, as_json: AsJson = False, store: StoreUrl = None) -> None:
    """Show every decision, oldest first: when, what and by whom."""
    place = place_of(store)
    for one in audit_of(place).read():
        if as_json:
            print(msgspec.json.encode(one).decode())
        else:
            print(f"{one.at}  {one.verdict:<8}  {one.id}  {_clean(one.question)}  by {one.by}")


def _decide(ids: tuple[str, ...], store: str | None, *, approved: bool) -> None:
    if not ids:
        print("dragoman: Which one? Give the name that `list` shows.", file=sys.stderr)
        sys.exit(2)

    async def work(found: Store) -> list[Approval]:
        by = f"operator {getpass.getuser()}"
        return [await decide(found, id, approved=approved, by=by) for id in ids]

    for one in opened(store, work):
        print(f"{YES if approved else NO}  {one.id}  {_clean(one.prompt)}")


def _line(one: Approval) -> str:
    about = (
        "" if one.details is None else f"  {_clean(json.dumps(one.details, ensure_ascii=False))}"
    )
    return (
        f"{one.id}  {_clean(one.prompt)}{about}\n"
        f"    {one.agent}/{one.skill}  task {one.task_id}  for {one.owner}  "
        f"until {shown_time(one.expires_at)}"
    )


def _clean(text: str) -> str:
    """On one line, and nothing in it that moves the cursor: the words are the agent's."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]
