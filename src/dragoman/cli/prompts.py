"""Prompts the person at the terminal for answers to a task's questions."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from getpass import getpass

from msgspec.structs import replace

from dragoman.client.auth import CredentialRequest, wanted
from dragoman.core.events import Ask
from dragoman.core.model import AnyPart, Data, Task, Text
from dragoman.core.questions import Question, answer_value, question_of, yes_or_no

from . import formatting

WITHOUT_WORDS = {
    Ask.INPUT: "The agent asks for more.",
    Ask.APPROVAL: "The agent asks for your approval.",
    Ask.CREDENTIALS: "The agent needs credentials.",
    Ask.TOOL: "The agent asks for the result of a tool.",
}
"""The text for a question that has none of its own."""


def question_shown(task: Task) -> Question | None:
    """Returns the question of a task in a form that is safe to print, or None if it does not
    wait."""
    found = question_of(task)
    if found is None:
        return None
    prompt = formatting.clean(found.prompt) or WITHOUT_WORDS[found.kind]
    return replace(found, prompt=prompt)


class Interjection(Exception):
    """The person typed a command instead of an answer."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class TerminalPerson:
    """The person at the terminal. Typing blocks the event loop, since there is nothing else to
    do."""

    def __init__(self, commands: Container[str] = ()) -> None:
        """`commands` are words that are no answer when a line begins with one of them."""
        self._commands = commands
        with suppress(ModuleNotFoundError):
            import readline  # noqa: F401  lines can be edited, and earlier ones found again

    @staticmethod
    def is_there() -> bool:
        """Returns whether someone can see a question and answer it."""
        return sys.stdin.isatty() and sys.stdout.isatty()

    def answer(self, task: Task) -> tuple[AnyPart, ...] | None:
        """Asks the person the question of the task, and returns the answer, or None for Ctrl-D.

        Raises `KeyboardInterrupt` for Ctrl-C, and `Interjection` for a command.
        """
        question = question_shown(task)
        if question is None:
            return None
        with suppress(EOFError), typing():
            match question.kind:
                case Ask.CREDENTIALS:
                    return self._credentials(wanted(task))
                case Ask.APPROVAL:
                    return (Data(answer_value(self._approves(question))),)
                case _:
                    _show(question)
                    return (Text(self.line("? ")),)
        print()
        return None

    def line(self, prompt: str) -> str:
        """Reads a line that is not empty. A backslash at its end continues it on the next."""
        while True:
            text = input(prompt)
            while text.endswith("\\"):
                text = text[:-1] + "\n" + input("… ")
            if text.strip():
                return self._checked(text)

    def _checked(self, text: str) -> str:
        if text.strip().partition(" ")[0] in self._commands:
            raise Interjection(text)
        return text

    def _approves(self, question: Question) -> bool:
        _show(question)
        while True:
            decision = yes_or_no(self._checked(input("[y/n] ")))
            if decision is not None:
                return decision
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
    """Makes Ctrl-C raise `KeyboardInterrupt` in the block, because the event loop is blocked."""
    try:
        before = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    except ValueError:  # this is not the main thread, so other code handles signals
        yield
        return
    # The signal would also wake up the loop, which would cancel the task once more later on: what
    # the caller does about the interruption would then be canceled, too.
    wakeup = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, before)
        task = asyncio.current_task()
        with suppress(NotImplementedError, RuntimeError):
            if task is not None:
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
