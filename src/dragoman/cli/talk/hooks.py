"""`dragoman hooks`: sets, shows and deletes the webhooks of a task."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import App, Parameter

from dragoman.client import RemoteAgent
from dragoman.core.errors import ConfigError
from dragoman.core.model import Hook

from .. import formatting, json_output
from ..session_options import SessionOptions, TaskId, Url, run_with

TOKEN, CREDENTIALS = "DRAGOMAN_HOOK_TOKEN", "DRAGOMAN_HOOK_CREDENTIALS"

hooks = App(
    name="hooks",
    help=f"""Set, show and delete the webhooks of a task.

The secrets of a webhook come from the environment: the agent sends ${TOKEN} to the receiver with
every call, and ${CREDENTIALS} in the Authorization header. Neither is ever printed.

Exit code 0: success; 1: the agent refused; 2: the command line is invalid; 3: the agent cannot be
reached.
""",
    help_format="markdown",
)

HookId = Annotated[str, Parameter(name="--id", help="Id of the webhook, if the task has several.")]


@hooks.command(name="set")
def set_(
    url: Url,
    task: TaskId,
    to: Annotated[str, Parameter(help="Address of the receiver.")],
    /,
    *,
    hook_id: HookId = "",
    scheme: Annotated[str, Parameter(help="Scheme of the Authorization header.")] = "Bearer",
    way: SessionOptions = SessionOptions(),  # noqa: B008  frozen
) -> None:
    """Set a webhook. It replaces the one with the same --id."""
    if not to.startswith(("https://", "http://")):
        raise ConfigError("The address of a webhook must start with https:// or http://.")
    credentials = os.environ.get(CREDENTIALS, "")

    async def work(agent: RemoteAgent) -> None:
        made = await agent.set_hook(
            task,
            to,
            token=os.environ.get(TOKEN, ""),
            hook_id=hook_id,
            scheme=scheme if credentials else "",
            credentials=credentials,
        )
        _show([made], as_json=way.json, one=True)

    run_with(url, way, work)


@hooks.command
def get(
    url: Url,
    task: TaskId,
    /,
    *,
    hook_id: HookId = "",
    way: SessionOptions = SessionOptions(),  # noqa: B008  frozen
) -> None:
    """Show one webhook of a task, by default the first."""

    async def work(agent: RemoteAgent) -> None:
        _show([await agent.get_hook(task, hook_id)], as_json=way.json, one=True)

    run_with(url, way, work)


@hooks.command(name="list")
def listed(url: Url, task: TaskId, /, *, way: SessionOptions = SessionOptions()) -> None:  # noqa: B008  frozen
    """List the webhooks of a task."""

    async def work(agent: RemoteAgent) -> None:
        _show((await agent.list_hooks(task)).hooks, as_json=way.json)

    run_with(url, way, work)


@hooks.command
def delete(
    url: Url,
    task: TaskId,
    hook_id: Annotated[str, Parameter(help="Id of the webhook.")],
    /,
    *,
    way: SessionOptions = SessionOptions(),  # noqa: B008  frozen
) -> None:
    """Delete a webhook."""

    async def work(agent: RemoteAgent) -> None:
        await agent.delete_hook(task, hook_id)
        if way.json:
            json_output.show({})
        else:
            print("The webhook is called no more.")

    run_with(url, way, work)


def _show(found: list[Hook] | tuple[Hook, ...], *, as_json: bool, one: bool = False) -> None:
    if as_json:
        told = [json_output.hook(each) for each in found]
        json_output.show(told[0] if one else {"configs": told})
        return
    for each in found:
        proof = [name for name in ("token", "scheme") if getattr(each, name)]
        with_ = f"  (with {' and '.join(proof)})" if proof else ""
        print(f"{formatting.line(each.hook_id, 80)}  {formatting.line(each.url)}{with_}")
    if not found:
        print("The task has no webhooks.")
