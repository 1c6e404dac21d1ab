"""`dragoman tasks`: lists, shows, watches and cancels tasks."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter

from dragoman.client import RemoteAgent
from dragoman.core.errors import ConfigError
from dragoman.core.model import Message, State, Task

from .. import formatting, json_output
from ..dialogue import Dialogue
from ..prompts import question_shown
from ..session_options import (
    DONE,
    NOT_DONE,
    SessionOptions,
    TaskId,
    Url,
    code_of,
    named,
    run_with,
)
from ..view import chosen
from ..waiting import Wait

tasks = App(
    name="tasks",
    help="""List, show, watch and cancel tasks of an agent.

Exit code 0: done; 1: the agent refused, or the task failed, was rejected or canceled; 2: the
command is wrong; 3: the agent cannot be reached; 4: the task waits for an answer; 130: Ctrl-C.
""",
    help_format="markdown",
)

PAGE = 100
States = Literal[
    "submitted",
    "working",
    "input-required",
    "auth-required",
    "completed",
    "failed",
    "canceled",
    "rejected",
]


@tasks.command(name="list")
def listed(
    url: Url,
    /,
    *,
    state: Annotated[States | None, Parameter(help="Only tasks in this state.")] = None,
    context: Annotated[str, Parameter(help="Only tasks of this context.")] = "",
    limit: Annotated[int, Parameter(help="List at most this many tasks.")] = 20,
    way: SessionOptions = SessionOptions(),  # noqa: B008  frozen
) -> None:
    """List your tasks, the latest first."""
    if limit < 1:
        raise ConfigError("--limit must be 1 or more.")

    async def work(agent: RemoteAgent) -> None:
        found: list[Task] = []
        filters = {"context_id": context, "page_size": min(limit, PAGE)}
        wanted = State(state) if state else None
        async for task in agent.tasks(**filters, state=wanted):
            found.append(task)
            if len(found) == limit:
                break
        if way.json:
            json_output.show({"tasks": [json_output.task(task) for task in found]})
        elif found:
            _table(found)
        else:
            print("There are no such tasks.")

    run_with(url, way, work)


@tasks.command
def get(
    url: Url,
    id: TaskId,
    /,
    *,
    history: Annotated[
        int | None, Parameter(help="Show at most this many messages of its history.")
    ] = None,
    way: SessionOptions = SessionOptions(),  # noqa: B008  frozen
) -> None:
    """Show the current state of a task."""

    async def work(agent: RemoteAgent) -> int:
        task = await agent.get(id, history_length=history)
        if way.json:
            json_output.show(json_output.result(task))
        else:
            _show(task, url)
        return code_of(task)

    run_with(url, way, work)


@tasks.command
def watch(
    url: Url,
    id: TaskId,
    /,
    *,
    cursor: Annotated[
        int | None,
        Parameter(help="Show only events after this one, if the agent numbers its events."),
    ] = None,
    way: SessionOptions = SessionOptions(),  # noqa: B008  frozen
) -> None:
    """Follow a task until it ends or waits for an answer. Ctrl-C exits; the task continues."""
    wait = Wait(url, way.timeout)

    async def work(agent: RemoteAgent) -> int:
        view = chosen(as_json=way.json, growing=True)
        exchange = Dialogue(agent, view, None, wait=wait)
        result = await exchange.follow(agent.watch(id, cursor), cancel=False)
        if not isinstance(result, Message) and (question := question_shown(result)):
            view.note(f"The agent asks: {question.prompt}")
            view.note(f"Answer with: dragoman send {url} ANSWER --task {named(result)}")
        return code_of(result)

    run_with(url, way, work, wait=wait)


@tasks.command
def cancel(url: Url, id: TaskId, /, *, way: SessionOptions = SessionOptions()) -> None:  # noqa: B008  frozen
    """Cancel a task. The exit code is 0 if it is canceled now."""

    async def work(agent: RemoteAgent) -> int:
        task = await agent.cancel(id)
        if way.json:
            json_output.show(json_output.result(task))
        else:
            print(task.state.value)
        return DONE if task.state is State.CANCELED else NOT_DONE

    run_with(url, way, work)


def _table(found: list[Task]) -> None:
    from rich.table import Table
    from rich.text import Text

    from ..terminal_view import console

    out = console()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("TASK", "STATE", "SINCE (UTC)"):
        table.add_column(name, no_wrap=True, overflow="fold" if name == "TASK" else "ellipsis")
    table.add_column("SAID", no_wrap=True, overflow="ellipsis")
    for task in found:
        state = Text(task.state.value, formatting.COLOURS.get(task.state, "cyan"))
        table.add_row(
            Text(formatting.line(task.id, 80)),
            state,
            formatting.moment(task.status.at),
            Text(formatting.line(_said(task), 60)),
        )
    if not out.is_terminal:
        out.width = 200  # columns are for eyes, but nothing is cut off in a pipe
    out.print(table)


def _said(task: Task) -> str:
    """Returns what a task is about: its first message, or its last."""
    if task.history:
        return task.history[0].text
    return task.text or task.status.text


def _show(task: Task, url: str) -> None:
    from rich.text import Text

    from ..terminal_view import console

    out = console()
    state = Text(task.state.value, formatting.COLOURS.get(task.state, "cyan"))
    out.print(Text.assemble(Text(formatting.line(task.id), "bold"), "  ", state), soft_wrap=True)
    for name, value in (
        ("since", formatting.moment(task.status.at)),
        ("context", formatting.line(task.context_id)),
    ):
        if value:
            out.print(Text(f"{name:9}{value}"), soft_wrap=True)
    for message in task.history:
        out.print(
            Text(f"{message.role.value:9}{formatting.message_words(message)}"), soft_wrap=True
        )
    if task.status.message is not None:
        out.print(Text(f"agent    {formatting.message_words(task.status.message)}"), soft_wrap=True)
    for artifact in task.artifacts:
        title = formatting.line(artifact.name or artifact.artifact_id, 80)
        out.print(Text(f"\n{title}", "bold"), soft_wrap=True)
        out.print(Text(formatting.artifact_words(artifact)), soft_wrap=True)
    if question_shown(task) is not None:
        how = f"\nAnswer with: dragoman send {url} ANSWER --task {named(task)}"
        out.print(Text(how, "dim"), soft_wrap=True)
