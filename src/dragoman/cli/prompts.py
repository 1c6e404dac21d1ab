"""What a task asks back, put to the person at the terminal."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from getpass import getpass

from msgspec import Struct

from dragoman.client.auth import CredentialRequest, wanted
from dragoman.core.events import Ask
from dragoman.core.extensions import WORK
from dragoman.core.lifecycle import WAITING
from dragoman.core.model import AnyPart, Data, Json, State, Task, Text

from . import formatting

YES = frozenset(("y", "yes", "ok", "true", "是", "好", "同意"))
NO = frozenset(("n", "no", "false", "否", "不", "不同意"))


class Question(Struct, frozen=True):
    """What a task waits for."""

    kind: Ask
    prompt: str
    details: Json = None


def question_in(task: Task) -> Question | None:
    """What the task asks, if it waits. Our agents say in data what kind of question it is."""
    if task.state not in WAITING:
        return None
    message = task.status.message
    prompt = formatting.clean(message.text) if message is not None else ""
    if task.state is State.AUTH_REQUIRED:
        return Question(Ask.CREDENTIALS, prompt or "It needs credentials.")
    for part in message.parts if message is not None else ():
        told = part.value if isinstance(part, Data) else None
        if isinstance(told, dict) and f"{WORK}/question" in (part.metadata or {}):
            kind = Ask.APPROVAL if told.get("kind") == Ask.APPROVAL.value else Ask.INPUT
            return Question(kind, prompt, told.get("details"))
    return Question(Ask.INPUT, prompt or "It asks for more.")


class TerminalPerson:
    """Whoever sits at the terminal. Typing blocks the event loop: there is nothing else to do."""

    def __init__(self) -> None:
        with suppress(ModuleNotFoundError):
            import readline  # noqa: F401  lines can be edited, and earlier ones found again

    @staticmethod
    def is_there() -> bool:
        """Whether someone can see a question and answer it."""
        return sys.stdin.isatty() and sys.stdout.isatty()

    def answer(self, task: Task) -> tuple[AnyPart, ...] | None:
        """What the person says to what the task asks; None for nothing (Ctrl-D).

        `KeyboardInterrupt` is Ctrl-C at the question.
        """
        question = question_in(task)
        if question is None:
            return None
        with suppress(EOFError), typing():
            match question.kind:
                case Ask.CREDENTIALS:
                    return self._credentials(wanted(task))
                case Ask.APPROVAL:
                    return (Data({"approved": self._approves(question)}),)
                case _:
                    _show(question)
                    return (Text(self.line("? ")),)
        print()
        return None

    def line(self, prompt: str) -> str:
        """One line that is not empty; a backslash at its end goes on with the next."""
        while True:
            text = input(prompt)
            while text.endswith("\\"):
                text = text[:-1] + "\n" + input("… ")
            if text.strip():
                return text

    def _approves(self, question: Question) -> bool:
        _show(question)
        while True:
            said = input("[y/n] ").strip().lower()
            if said in YES:
                return True
            if said in NO:
                return False
            print("Please answer y or n.")

    def _credentials(self, asked: CredentialRequest | None) -> tuple[AnyPart, ...] | None:
        if asked is None:
            return None
        print(asked.prompt)
        given = {
            field.name: (getpass if field.secret else input)(
                f"{formatting.line(field.label, 60)}: "
            )
            for field in asked.fields
        }
        return asked.answer(given)


def _show(question: Question) -> None:
    print(question.prompt)
    if question.details is not None:
        print(formatting.part_words(Data(question.details)))


@contextmanager
def typing() -> Iterator[None]:
    """Ctrl-C is a `KeyboardInterrupt` here and now, not a message to a loop that stands still."""
    try:
        before = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    except ValueError:  # not the main thread: signals are someone else's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        task = asyncio.current_task()
        with suppress(NotImplementedError, RuntimeError):
            if task is not None:
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
