"""The subjects of the checks: the agent as a whole, and one of its interfaces."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, TypeVar
from uuid import uuid4

from msgspec import Struct

from .check import Broken, Unknowable, given
from .expected_errors import expect
from .http import HttpAnswer, RawHttp
from .probes import NO_HEADERS, Probe, ProbeReply, ProbeStream
from .requests import Args

P = TypeVar("P")
PAUSE = 0.05
NO_TASK = "00000000-0000-4000-8000-000000000000"
"""The id of a task that does not exist."""


class TestTexts(Struct, frozen=True, kw_only=True):
    """The messages for the agent that the user provides."""

    text: str = ""
    """A message that the agent answers without a question."""
    slow: str = ""
    """A message that keeps the agent busy for some seconds."""
    ask: str = ""
    """A message that makes the agent ask a question."""


class AgentUnderTest:
    """The agent under examination: its card and its interfaces."""

    def __init__(self, url: str, wire: RawHttp, words: TestTexts) -> None:
        self.url, self.wire, self.words = url, wire, words
        self.cases: list[Case] = []
        """The interfaces to examine."""
        self.locked: list[Case] = []
        """The interfaces that let nobody in without other credentials."""

    @cached_property
    def answer(self) -> HttpAnswer:
        """Returns the response with the card, from the old path if only that has one."""
        answer = self.wire.ask("GET", self.card_url)
        if answer.status == 404 and not self.url.endswith(".json"):
            older = self.wire.ask("GET", f"{self.url.rstrip('/')}/.well-known/agent.json")
            return older if older.status == 200 else answer
        return answer

    @property
    def card_url(self) -> str:
        """Returns the address of the card."""
        if self.url.endswith(".json"):
            return self.url
        return f"{self.url.rstrip('/')}/.well-known/agent-card.json"

    @cached_property
    def card(self) -> dict[str, Any]:
        """Returns the card. Raises `Unknowable` if there is none to read."""
        try:
            value = self.answer.json()
        except Broken as exc:
            raise Unknowable(f"there is no card to read ({exc})") from None
        given(self.answer.status == 200, "there is no card to read")
        given(isinstance(value, dict), "the card is not an object")
        return dict(value)

    @property
    def new(self) -> bool:
        """Returns whether the card is in the form of 1.0."""
        return "supportedInterfaces" in self.card

    @property
    def old(self) -> bool:
        """Returns whether a reader of 0.3 would understand the card."""
        return "url" in self.card or not self.new

    @property
    def first_days(self) -> bool:
        """Returns whether the card names no version, as before 0.2.5. The client then tries 0.1
        too."""
        return not self.new and self.card.get("protocolVersion") is None

    def can(self, capability: str) -> bool:
        """Returns whether the card declares this capability."""
        capabilities = self.card.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True

    @property
    def extensions(self) -> list[dict[str, Any]]:
        """Returns the extensions that the card declares."""
        held = self.card.get("capabilities")
        found = held.get("extensions") if isinstance(held, dict) else None
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    @property
    def required(self) -> list[str]:
        """Returns the extensions that every caller must activate. The doctor activates them."""
        return [str(one.get("uri")) for one in self.extensions if one.get("required") is True]

    @property
    def text(self) -> str:
        """Returns a message for the agent."""
        if self.words.text:
            return self.words.text
        skills = self.card.get("skills")
        for skill in skills if isinstance(skills, list) else ():
            examples = skill.get("examples") if isinstance(skill, dict) else None
            if isinstance(examples, list) and examples and isinstance(examples[0], str):
                return examples[0]
        return "hello"


class Case:
    """One interface under examination."""

    def __init__(self, agent: AgentUnderTest, probe: Probe) -> None:
        self.agent, self.probe = agent, probe
        self.form, self.binding, self.version = probe.form, probe.binding, probe.version
        if agent.required:
            probe.own = self.extensions()
        self._sent: tuple[ProbeReply, str, str] | None = None
        self._done: dict[str, Any] | Unknowable | None = None
        self._hooks: list[Args] = []
        """The webhooks that checks have set."""
        self.heard: tuple[ProbeStream, list[tuple[str, Any]]] | None = None
        """A stream that was read to its end, which several checks share."""

    @property
    def name(self) -> str:
        """Returns the name of the interface, such as `jsonrpc-1.0`."""
        return f"{self.binding}-{self.version}"

    def extensions(self, *uris: str) -> dict[str, str]:
        """Returns the header that activates these extensions, and those that the agent requires."""
        name = "A2A-Extensions" if self.version == "1.0" else "X-A2A-Extensions"
        return {name: ", ".join((*self.agent.required, *uris))}

    def through(self, kind: type[P]) -> P:
        """Returns the probe as the type that the bindings of a check guarantee."""
        if not isinstance(self.probe, kind):
            raise TypeError(f"the probe of {self.name} is not a {kind.__name__}")
        return self.probe

    # Requests

    def message(self, text: str = "", **members: Any) -> dict[str, Any]:
        """Returns a message in the form of 1.0."""
        parts = [{"text": text or self.agent.text}]
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": parts, **members}
        return {key: value for key, value in message.items() if value is not None}

    def ask(self, op: str, headers: Mapping[str, str] = NO_HEADERS, **args: Any) -> ProbeReply:
        """Sends one request."""
        reply = self.probe.ask(op, args, headers)
        if op == "push.set" and reply.refusal is None:
            self._hooks.append({"taskId": args["taskId"], "id": args["id"]})
        return reply

    def close(self) -> None:
        """Deletes the webhooks, which the agent might call for days, and closes the probe."""
        for hook in self._hooks:
            with suppress(Broken, Unknowable):
                self.probe.ask("push.delete", hook)
        self.probe.close()

    def send(
        self,
        text: str = "",
        configuration: dict[str, Any] | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        **members: Any,
    ) -> ProbeReply:
        """Sends a message."""
        args: dict[str, Any] = {"message": self.message(text, **members)}
        if configuration is not None:
            args["configuration"] = configuration
        return self.probe.ask("send", args, headers)

    @contextmanager
    def stream(self, op: str = "stream", **args: Any) -> Iterator[ProbeStream]:
        """Opens a stream, if the card declares streams."""
        given(self.agent.can("streaming"), "the card does not declare streaming")
        if op == "stream" and not args:
            args = {"message": self.message()}
        with self.probe.stream(op, args) as stream:
            yield stream

    # Answers

    def refused(self, reply: ProbeReply | ProbeStream, *kinds: str) -> None:
        """Raises `Broken` unless the request was refused with one of these errors."""
        expect(reply.refusal, *kinds, version=self.version, binding=self.binding)

    def accepted(self, reply: ProbeReply) -> Any:
        """Returns the result. Raises `Broken` if the request was refused."""
        if reply.refusal is not None:
            raise Broken(f"refused: {reply.refusal}")
        return reply.result

    def shaped(self, name: str, value: Any) -> None:
        """Raises `Broken` if a value does not have this structure."""
        problems = list(self.form.problems(name, value))
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise Broken(problems[0] + more)

    def told(self, reply: ProbeReply) -> tuple[str, Any]:
        """Returns the answer to a send: `Task` or `Message`, and the value."""
        kind, value = self.form.unwrap(self.accepted(reply))
        if kind not in ("Task", "Message") or not isinstance(value, dict):
            raise Broken("the answer is neither a Task nor a Message")
        return kind, value

    def task(self, reply: ProbeReply) -> dict[str, Any]:
        """Returns the task with which a send was answered."""
        kind, value = self.told(reply)
        given(kind == "Task", "the agent answers with a Message, so there is no task")
        return dict(value)

    def state(self, task: Any) -> Any:
        """Returns the state of a task, or None."""
        status = task.get("status") if isinstance(task, dict) else None
        return status.get("state") if isinstance(status, dict) else None

    # Tasks for the checks

    @property
    def slow(self) -> str:
        """Returns a message that keeps the agent busy. Raises `Unknowable` if the user gave
        none."""
        slow = self.agent.words.slow
        given(slow, "needs a text that keeps the agent busy (--slow-text)")
        return slow

    @property
    def sent(self) -> ProbeReply:
        """Returns the answer to an ordinary message. All checks share it and its evidence."""
        wire = self.agent.wire
        if self._sent is None:
            self._sent = self.send(), wire.sent, wire.came
        reply, *evidence = self._sent
        wire.note(*evidence)
        return reply

    @property
    def done(self) -> dict[str, Any]:
        """Returns a task that has ended. The outcome is cached, even if there is none."""
        if self._done is None:
            try:
                task = self.ended(self.task(self.sent))
                given(isinstance(task.get("id"), str), "the task has no id")
                self._done = task
            except Broken as exc:
                self._done = Unknowable(f"there is no task to examine: {exc}")
            except Unknowable as exc:
                self._done = exc
        if isinstance(self._done, Unknowable):
            raise self._done
        return self._done

    def ended(self, task: dict[str, Any]) -> dict[str, Any]:
        """Waits until the task has ended, and returns it."""
        task = self.rested(task)
        given(
            self.form.final(self.state(task)),
            "the agent asks a question; use --text with a message that it answers directly",
        )
        return task

    def rested(self, task: dict[str, Any]) -> dict[str, Any]:
        """Waits until the task has ended or waits for its caller, and returns it."""
        deadline = time.monotonic() + self.agent.wire.timeout
        while not self.form.resting(self.state(task)):
            given(self.state(task) is not None, "the task has no state")
            given(time.monotonic() < deadline, "the task does not end; try another --text")
            time.sleep(PAUSE)
            task = self.accepted(self.ask("get", id=task.get("id")))
        return task

    def running(self) -> dict[str, Any]:
        """Returns a task that is still running."""
        task = self.task(self.send(self.slow, {"returnImmediately": True}))
        given(isinstance(task.get("id"), str), "the task has no id")
        given(not self.form.final(self.state(task)), "the slow text is answered at once")
        return task
