"""`dragoman approvals`: lists, answers and audits approvals."""

from __future__ import annotations

import getpass
import json
import os
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from dragoman.core.errors import ConfigError
from dragoman.store import Store
from dragoman.store.approvals import NO, YES, Approval, audit_of, decide, open_approvals

from .. import formatting
from ..store_access import AsJson, StoreUrl, opened, place_of, shown_time

approvals = App(name="approvals", help="List and answer pending approvals.")

Id = Annotated[str, Parameter(help="The name that `list` shows, or the beginning of it.")]


@approvals.command(name="list")
def listed(
    *,
    agent: Annotated[str | None, Parameter(help="Only tasks of this agent. [default: all]")] = None,
    as_json: AsJson = False,
    store: StoreUrl = None,
) -> None:
    """List the approvals that wait for a decision, oldest first."""
    waiting = opened(store, lambda found: open_approvals(found, agent))
    if not waiting and not as_json:
        print("Nothing waits for approval.")
    for one in waiting:
        print(msgspec.json.encode(one).decode() if as_json else _shown(one))


@approvals.command
def approve(*ids: Id, store: StoreUrl = None) -> None:
    """Approve actions, so that their tasks continue."""
    _decide(ids, store, approved=True)


@approvals.command
def deny(*ids: Id, store: StoreUrl = None) -> None:
    """Deny actions."""
    _decide(ids, store, approved=False)


@approvals.command(name="log")
def logged(*, as_json: AsJson = False, store: StoreUrl = None) -> None:
    """Show every decision, oldest first: when, what and by whom."""
    decided = list(audit_of(place_of(store)).read())
    if not decided and not as_json:
        print("Nothing was decided yet.")
    for one in decided:
        if as_json:
            print(msgspec.json.encode(one).decode())
        else:
            print(f"{one.at}  {one.verdict:<8}  {one.id}  {_line(one.question)}  by {one.by}")


def _decide(ids: tuple[str, ...], store: str | None, *, approved: bool) -> None:
    if not ids:
        raise ConfigError("Which one? Give the name that `dragoman approvals list` shows.")

    async def work(found: Store) -> list[Approval]:
        by = f"operator {_operator()}"
        return [await decide(found, id, approved=approved, by=by) for id in ids]

    for one in opened(store, work):
        print(f"{YES if approved else NO}  {one.id}  {_line(one.prompt)}")


def _shown(one: Approval) -> str:
    told = json.dumps(one.details, ensure_ascii=False)
    about = "" if one.details is None else f"  {_line(told)}"
    return (
        f"{one.id}  {_line(one.prompt)}{about}\n"
        f"    {one.agent}/{one.skill}  task {one.task_id}  for {one.owner}  "
        f"until {shown_time(one.expires_at)}"
    )


def _line(text: str) -> str:
    """Returns the agent's words on one line."""
    return formatting.line(text, 300)


def _operator() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container a user may have no name
        return str(os.getuid())
