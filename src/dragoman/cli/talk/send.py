"""`dragoman send`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from dragoman.core.errors import ConfigError
from dragoman.core.extensions import WORK
from dragoman.core.model import Data, Message, Task

from .. import formatting, json_output
from ..dialogue import Dialogue, Left, SaveFolder, ShowWork
from ..prompts import TerminalPerson, question_shown
from ..session_options import DONE, INTERRUPTED, SessionOptions, Url, agent_at, code_of, named, run
from ..stdin_argument import DASH
from ..view import chosen
from ..waiting import Wait

MOST_STDIN = 16 * 1024 * 1024


def send(
    url: Url,
    text: Annotated[str, DASH, Parameter(help="Text of the message; - reads standard input.")] = "",
    /,
    *,
    file: Annotated[
        tuple[Path, ...], Parameter(alias="-f", help="File to attach; repeatable.")
    ] = (),
    data: Annotated[
        str | None, Parameter(alias="-d", help="JSON data to attach; @FILE reads it from a file.")
    ] = None,
    skill: Annotated[str, Parameter(alias="-s", help="Id of the skill.")] = "",
    task: Annotated[
        str, Parameter(alias="-t", help="Id of the task that the message answers or continues.")
    ] = "",
    context: Annotated[
        str, Parameter(alias="-c", help="Id of the context that the message belongs to.")
    ] = "",
    stream: Annotated[
        bool,
        Parameter(help="Write text as it arrives even if piped; with --json, every event."),
    ] = False,
    no_wait: Annotated[
        bool, Parameter(help="Print the id of the task instead of waiting for it.")
    ] = False,
    save: SaveFolder = None,
    work: ShowWork = False,
    ask: Annotated[
        bool,
        Parameter(
            help="Prompt for answers to the agent's questions. [default: on a terminal]",
            negative="--no-ask",
            show_default=False,
        ),
    ] = True,
    way: SessionOptions = SessionOptions(),  # noqa: B008  frozen
) -> None:
    """Send a message to an agent and show the result.

    On a terminal there is a live view, and you are prompted for answers to the agent's questions.
    If the output is piped, only the result is written to standard output. Ctrl-C cancels the task;
    a second Ctrl-C exits at once.

    Exit code 0: completed, or a direct reply; 1: failed, rejected, canceled or refused; 2: the
    command line is invalid; 3: the agent cannot be reached; 4: the task waits for an answer;
    130: Ctrl-C.
    """
    what = _said(text, file, data)
    person = TerminalPerson() if ask and not way.json and TerminalPerson.is_there() else None

    async def talk() -> int:
        wait = Wait(url, way.timeout)
        async with agent_at(url, way, extensions=(WORK,) if work else (), wait=wait) as agent:
            about: dict[str, Any] = {"task": task} if task else {}
            if no_wait:
                first = await agent.ask(*what, wait=False, skill=skill, context_id=context, **about)
                return _begun(first, url, as_json=way.json)
            view = chosen(as_json=way.json, growing=stream)
            exchange = Dialogue(agent, view, person, save, wait=wait)
            talk = agent.conversation(context, skill="" if task else skill)
            try:
                result = await exchange.say(talk, *what, **about)
            except Left:
                return INTERRUPTED
            if not isinstance(result, Message) and (question := question_shown(result)):
                if person is None and not way.json:
                    view.note(f"The agent asks: {question.prompt}")
                view.note(f"Answer with: dragoman send {url} ANSWER --task {named(result)}")
            return code_of(result)

    run(talk, url, as_json=way.json)


def _begun(first: Task | Message, url: str, *, as_json: bool) -> int:
    """Prints what `--no-wait` shows; a script needs the id alone."""
    if as_json:
        json_output.show(json_output.result(first))
    elif isinstance(first, Message):
        print(formatting.result_words(first))
    else:
        print(formatting.line(first.id))
        if sys.stdout.isatty():
            print(f"Follow it with: dragoman tasks watch {url} {named(first)}")
    return DONE


def _said(text: str, files: tuple[Path, ...], data: str | None) -> list[object]:
    what: list[object] = []
    if text == "-":
        text = sys.stdin.buffer.read(MOST_STDIN).decode("utf-8", "replace").rstrip("\n")
    if text:
        what.append(text)
    for path in files:
        if not path.is_file():
            raise ConfigError(f"There is no file {path}.")
        what.append(path)
    if data is not None:
        what.append(_json(data))
    if not what:
        raise ConfigError("There is nothing to send: pass TEXT, --file or --data.")
    return what


def _json(data: str) -> Data:
    try:
        raw = Path(data[1:]).read_bytes() if data.startswith("@") else data.encode()
        return Data(msgspec.json.decode(raw))
    except OSError as exc:
        raise ConfigError(f"{data[1:]} cannot be read: {exc.strerror}.") from None
    except msgspec.DecodeError as exc:
        raise ConfigError(f"--data is not JSON: {exc}.") from None
