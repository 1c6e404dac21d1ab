"""`dragoman chat`: a conversation in the terminal."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from dragoman.client import Conversation, RemoteAgent
from dragoman.client.auth import private_files
from dragoman.core.errors import DragomanError
from dragoman.core.extensions import WORK
from dragoman.core.model import Message, Task

from .. import formatting
from ..dialogue import Dialogue, Left, SaveFolder, ShowWork
from ..prompts import Interjection, TerminalPerson, question_shown, typing
from ..session_options import DONE, INTERRUPTED, SessionOptions, Url, advice, agent_at, code_of, run
from ..view import chosen
from ..waiting import Wait

PROMPT = "> "
HISTORY = 1000
"""The number of lines that are kept from one chat to the next."""


def chat(
    url: Url,
    /,
    *,
    skill: Annotated[str, Parameter(alias="-s", help="Id of the skill to use.")] = "",
    context: Annotated[str, Parameter(alias="-c", help="Id of the context to continue.")] = "",
    save: SaveFolder = None,
    work: ShowWork = False,
    no_history: Annotated[
        bool, Parameter(help="Do not save the lines you type for the next chat.")
    ] = False,
    way: SessionOptions = SessionOptions(),  # noqa: B008  frozen
) -> None:
    """Chat with an agent.

    Every line that you type is sent as a message. If the agent asks a question, you are prompted
    for the answer: yes or no for an approval, without echo for a secret. /help lists the commands,
    such as /file PATH. Ctrl-C cancels the running task; at the prompt it exits, as Ctrl-D does.

    Without a terminal, every line of standard input is sent as a message.

    Exit code 0: you left; 1: refused, or (without a terminal) the last task failed; 2: the command
    line is invalid; 3: the agent cannot be reached; 4: the last task waits for an answer;
    130: Ctrl-C.
    """

    async def talk() -> int:
        wait = Wait(url, response_timeout=way.timeout)  # the chat itself has no limit
        async with agent_at(url, way, extensions=(WORK,) if work else (), wait=wait) as agent:
            wait.rest()
            if way.json or not TerminalPerson.is_there():
                view = chosen(as_json=way.json, growing=False)
                exchange = Dialogue(agent, view, None, save, wait=wait)
                talk = agent.conversation(context, skill=skill)
                return await _read(exchange, talk, as_json=way.json)
            room = Room(agent, url, skill, context, save, wait, kept=not no_history)
            return await room.run()

    run(talk, url, as_json=way.json)


async def _read(exchange: Dialogue, talk: Conversation, *, as_json: bool) -> int:
    """Sends every line of standard input as a message."""
    code = DONE
    for line in sys.stdin.buffer:  # there is nothing to do between two lines
        text = line.decode("utf-8", "replace")
        if not text.strip():
            continue
        try:
            result = await exchange.say(talk, text.rstrip("\r\n"))
        except Left:
            return INTERRUPTED
        if isinstance(result, Task) and (question := question_shown(result)) and not as_json:
            print(question.prompt, flush=True)
        code = code_of(result)
    return code


class Room:
    """A chat between the person and the agent."""

    def __init__(
        self,
        agent: RemoteAgent,
        url: str,
        skill: str,
        context: str,
        save: Path | None,
        wait: Wait,
        *,
        kept: bool,
    ) -> None:
        self.agent, self.url, self.skill = agent, url, skill
        self.console = Console(highlight=False)
        self.person = TerminalPerson(COMMANDS)
        view = chosen(as_json=False, growing=True, closing=False)
        self.exchange = Dialogue(
            agent, view, self.person, save, "/save DIR keeps files.", wait=wait
        )
        self.talk: Conversation = agent.conversation(context, skill=skill)
        self.said: list[tuple[str, str]] = []
        self._lines = Lines(kept=kept)
        self._open = True

    async def run(self) -> int:
        """Runs until the person leaves."""
        card = self.agent.card
        self.show(f"{formatting.line(card.name, 80)}  ({self.agent.dialect})", "bold")
        if card.description:
            self.show(formatting.line(card.description, 400))
        self.show("/help lists the commands, Ctrl-D exits.", "dim")
        while self._open:
            try:
                with typing():
                    text = self._lines.read(PROMPT)
            except (EOFError, KeyboardInterrupt):
                print()
                break
            if text.strip():
                await self._take(text)
        self._lines.keep()
        return DONE

    async def _take(self, text: str) -> None:
        """Sends a line, or executes its command. An error ends the line, not the chat."""
        try:
            word, _, rest = text.strip().partition(" ")
            if not word.startswith("/"):
                await self._say(text)
            elif word in COMMANDS:
                await COMMANDS[word][2](self, rest.strip())
            else:
                self.show(f"There is no {formatting.line(word, 40)}. /help lists the commands.")
        except DragomanError as exc:
            self.show(formatting.clean(exc.message), "red")
            if hint := advice(exc, self.url):
                self.show(hint)
        except Left as left:
            if left.task is not None:
                self.talk.task = left.task

    async def _say(self, text: str) -> None:
        self.said.append(("you", text))
        work = self.exchange.say(self.talk, text)
        while True:
            try:
                result = await work
                break
            except Interjection as command:
                await self._take(command.text)
                task = self.talk.task
                if not self._open or task is None or not self.talk.waits:
                    return
                work = self.exchange.go_on(self.talk, task)
        answer = formatting.result_words(result)
        if not answer and isinstance(result, Task) and (question := question_shown(result)):
            answer = question.prompt
        self.said.append(("agent", answer))
        if isinstance(result, Message):
            return
        if question_shown(result) is not None:
            self.show("The task still waits: your next message answers it, /cancel ends it.", "dim")

    def show(self, text: str, style: str = "") -> None:
        """Prints a line that is not the agent's."""
        self.console.print(Text(text, style), soft_wrap=True)

    # Commands.

    async def help(self, rest: str) -> None:
        for name, (takes, about, _) in COMMANDS.items():
            self.show(f"{name + takes:14} {about}")

    async def file(self, rest: str) -> None:
        try:
            named = shlex.split(rest) or [""]
        except ValueError:
            named = [rest]
        for name in named:
            path = _at_home(name)
            if not _is_file(path):
                self.show(f"There is no file {formatting.line(name)}.")
                continue
            self.exchange.files.append(path)
            self.show(f"{path.name} will be attached to your next message.", "dim")

    async def save(self, rest: str) -> None:
        if self.talk.task is None or not formatting.has_files(self.talk.task):
            self.show("The last answer has no files.")
            return
        for path in await self.agent.save(self.talk.task, _at_home(rest or ".")):
            self.show(f"Saved {path}", "dim")

    async def use(self, rest: str) -> None:
        known = [skill.id for skill in self.agent.card.skills]
        if not rest:
            for skill in self.agent.card.skills:
                mark = "*" if skill.id == self.skill else " "
                about = formatting.line(skill.description)
                self.show(f"{mark} {formatting.line(skill.id, 40):16} {about}")
            return
        if rest not in known:
            self.show(f"There is no skill {formatting.line(rest, 40)}: {', '.join(known)}")
            return
        self._leave()
        self.skill = rest
        self.talk = self.agent.conversation(self.talk.context_id, skill=rest)

    async def history(self, rest: str) -> None:
        for who, text in self.said:
            self.show(f"{who}: {formatting.clean(text)}")

    async def task(self, rest: str) -> None:
        task = self.talk.task
        if task is None:
            self.show("There is no task yet.")
        else:
            self.show(f"{formatting.line(task.id)}  {task.state.value}")
        if self.talk.context_id:
            self.show(f"context {formatting.line(self.talk.context_id)}")

    async def cancel(self, rest: str) -> None:
        task = await self.talk.cancel()
        self.show("There is no task to cancel." if task is None else task.state.value)

    async def new(self, rest: str) -> None:
        self._leave()
        self.talk = self.agent.conversation(skill=self.skill)
        self.said.clear()
        self.exchange.files.clear()
        self.show("A new conversation.", "dim")

    def _leave(self) -> None:
        """Names the task that the next message will no longer answer."""
        if self.talk.task is not None and self.talk.waits:
            self.show(f"The task {formatting.line(self.talk.task.id)} still waits.", "dim")

    async def quit(self, rest: str) -> None:
        self._open = False


Command = Callable[[Room, str], Awaitable[None]]
COMMANDS: dict[str, tuple[str, str, Command]] = {
    "/help": ("", "shows this list", Room.help),
    "/file": (" PATH", "attaches a file to the next message", Room.file),
    "/save": (" [DIR]", "saves the files of the last answer", Room.save),
    "/skill": (" [ID]", "lists the skills, or chooses one", Room.use),
    "/history": ("", "shows the conversation so far", Room.history),
    "/task": ("", "shows the ids and the state of the last task", Room.task),
    "/cancel": ("", "cancels the task that waits for an answer", Room.cancel),
    "/new": ("", "starts another conversation", Room.new),
    "/quit": ("", "exits", Room.quit),
}


class Lines:
    """Reads what is typed, with editing, completion and the lines of earlier chats."""

    def __init__(self, *, kept: bool) -> None:
        self._path = private_files.folder(os.environ) / "chat_history" if kept else None
        try:
            import readline
        except ModuleNotFoundError:  # Windows edits lines by itself
            self._readline = None
            return
        self._readline = readline
        readline.set_completer(_complete)
        readline.set_completer_delims(" ")
        readline.parse_and_bind("tab: complete")
        if self._path is not None:
            with suppress(OSError):
                readline.read_history_file(self._path)

    def read(self, prompt: str) -> str:
        """Reads a line. A backslash at its end continues it on the next."""
        text = input(prompt)
        while text.endswith("\\"):
            text = text[:-1] + "\n" + input("… ")
        return text

    def keep(self) -> None:
        """Saves the lines for the next chat in a file that nobody else can read."""
        if self._path is None or self._readline is None:
            return
        self._readline.set_history_length(HISTORY)
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600))
            self._readline.write_history_file(self._path)


def _complete(text: str, number: int) -> str | None:
    """Completes commands, and paths after them."""
    if text.startswith("/") and "/" not in text[1:]:
        found = [name for name in COMMANDS if name.startswith(text)]
    else:
        folder, _, start = text.rpartition("/")
        place = Path(folder + "/" if folder or text.startswith("/") else ".").expanduser()
        try:
            names = sorted(p.name + ("/" if p.is_dir() else "") for p in place.iterdir())
        except OSError:
            return None
        head = text[: len(text) - len(start)]
        found = [head + name for name in names if name.startswith(start)]
    return found[number] if number < len(found) else None


def _at_home(name: str) -> Path:
    """Returns a path as a person writes it, with `~` expanded if that home exists."""
    return Path(os.path.expanduser(name))


def _is_file(path: Path) -> bool:
    return path.is_file()
