"""All errors of Dragoman, as one tree.

    DragomanError                reason, message, public details (safe to show), retry
    ├─ CallError                 the caller's fault
    │  ├─ Malformed              ├─ Unparseable ├─ UnknownMethod ├─ BadParams
    │  ├─ TaskNotFound · TaskFinished · NotCancelable · HookNotFound · Conflict
    │  ├─ Unsupported            ├─ PushUnsupported ├─ ContentTypeUnsupported
    │  │                         ├─ VersionUnsupported ├─ ExtensionRequired
    │  │                         └─ NoExtendedCard ─ ExtendedCardOff
    │  ├─ Unauthenticated · Forbidden ─ WorkspaceViolation
    │  └─ TooLarge · TooSlow · TooMany
    ├─ AgentError                our agent's fault: AgentCrashed · AgentMisbehaved · AgentTimedOut
    ├─ PeerError                 the fault of an agent that we call: PeerRefused ·
    │                            PeerMisbehaved · PeerUnreachable (retry) · CardUntrusted
    ├─ StoreError                StoreUnavailable (retry) · Fenced
    └─ ConfigError               found before anything starts

The engine knows no error codes: each dialect has one table that spells every leaf. The default
message of an error is its docstring. The names of base classes end in `Error`; the names of leaves
say what happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar


class DragomanError(Exception):
    """Something went wrong."""

    retry: ClassVar[bool] = False
    code: int = 0
    """The code that another side sent in its own dialect; 0 for an error of ours."""
    data: object = None
    """What the other side sent in addition to the code and the message, unchanged."""

    def __init__(self, message: str = "", **public: str) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.public: Mapping[str, str] = public
        super().__init__(self.message)

    def reword(self, message: str) -> None:
        """Replaces the message."""
        self.message = message
        self.args = (message, *self.args[1:])

    @property
    def reason(self) -> str:
        """Returns the machine-readable name of the error: `task_not_found` for `TaskNotFound`."""
        name = type(self).__name__
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class CallError(DragomanError):
    """The call cannot be done."""


class Malformed(CallError):
    """This is not a valid request."""


class Unparseable(Malformed):
    """This is not valid JSON."""


class UnknownMethod(Malformed):
    """There is no such method."""


class BadParams(Malformed):
    """The parameters are not valid."""


class TaskNotFound(CallError):
    """There is no such task."""


class TaskFinished(CallError):
    """The task is finished and takes no more messages."""


class NotCancelable(CallError):
    """The task is finished and cannot be canceled."""


class HookNotFound(CallError):
    """There is no such webhook."""


class Conflict(CallError):
    """This was asked before with another content."""


class Unsupported(CallError):
    """This operation is not supported."""


class PushUnsupported(Unsupported):
    """Push notifications are not supported by this agent."""


class ContentTypeUnsupported(Unsupported):
    """The agent does not take this type of content."""


class VersionUnsupported(Unsupported):
    """This protocol version is not supported."""


class ExtensionRequired(Unsupported):
    """The agent requires an extension that the caller did not activate."""


class NoExtendedCard(Unsupported):
    """No extended card is configured."""


class ExtendedCardOff(NoExtendedCard):
    """This agent has no extended card."""


class Unauthenticated(CallError):
    """Credentials are missing or wrong."""


class Forbidden(CallError):
    """The caller may not do this."""


class WorkspaceViolation(Forbidden):
    """This lies outside of the workspace."""


class TooLarge(CallError):
    """The request is too large."""


class TooSlow(CallError):
    """The request did not arrive in time."""


class TooMany(CallError):
    """Too many requests; try again later."""

    retry = True


class AgentError(DragomanError):
    """The agent failed."""


class AgentCrashed(AgentError):
    """The agent failed unexpectedly."""


class AgentMisbehaved(AgentError):
    """The agent gave an answer that breaks the protocol."""


class AgentTimedOut(AgentError):
    """The agent took too long."""


class PeerError(DragomanError):
    """The other side failed."""


class PeerRefused(PeerError):
    """The other side answered with an error that has no name here."""

    word: str = ""
    """The code that the other side sent, if it is a word."""

    def __init__(self, message: str = "", *, code: int = 0, **public: str) -> None:
        super().__init__(message, **public)
        self.code = code

    @property
    def reason(self) -> str:
        """Returns the word of the other side, if there is one."""
        return self.word or super().reason


class PeerMisbehaved(PeerError):
    """The other side broke its own dialect."""


class PeerUnreachable(PeerError):
    """The other side cannot be reached, or the connection broke; try again later."""

    retry = True

    def __init__(self, message: str = "", *, sent: bool = False, **public: str) -> None:
        super().__init__(message, **public)
        self.sent = sent
        """Whether the call may have arrived, so that it may have been executed."""


class CardUntrusted(PeerError):
    """The agent's card is not signed as it must be."""


class StoreError(DragomanError):
    """The store failed."""


class StoreUnavailable(StoreError):
    """The store does not answer; try again later."""

    retry = True


class Fenced(StoreError):
    """Someone else holds the task now."""


class ConfigError(DragomanError):
    """The configuration is not valid."""


def errors_in(*modules: str) -> Iterator[type[DragomanError]]:
    """Yields every error of this module and of these, each after its base class. A dialect makes
    its table of codes from them."""
    known = (__name__, *modules)

    def tree(cls: type[DragomanError]) -> Iterator[type[DragomanError]]:
        yield cls
        for child in cls.__subclasses__():
            if child.__module__ in known:
                yield from tree(child)

    return tree(DragomanError)
