"""What somebody said in a room, as we understand it, and who is addressed by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from dragoman.core.card import Card
from dragoman.core.peer import Peer
from dragoman.dialects.lite.wire import LiteMessage, is_called
from dragoman.net.chat import ChatMessage
from dragoman.store.interface import Store


class HeardMessage(Struct, frozen=True, kw_only=True):
    """A message of somebody else."""

    chat: ChatMessage
    lite: LiteMessage | None = None
    """The message of the protocol, or None for plain text."""
    text: str = ""
    """The text, without a marker and without the name at its beginning."""
    mention: str = ""
    """The name that it is for, from `to=` or from its beginning; empty if none is named there."""
    person: bool = True
    """Whether a person may have said it. Programs are known by their channel, or by what they
    say."""
    number: int = 0
    """Its number among all that is said in the channel, when it began."""
    addressed: bool = False
    """Whether our account is addressed: by its name, or because nobody else is there."""

    @property
    def marked(self) -> LiteMessage:
        """The message of the protocol, where only messages with a marker come."""
        assert self.lite is not None  # noqa: S101  plain text is handled elsewhere
        return self.lite

    @property
    def whose(self) -> tuple[str, str]:
        """The room and the sender."""
        return self.chat.room, self.chat.sender


class Resident(Struct, frozen=True, kw_only=True):
    """An agent of ours that lives in the rooms of a channel."""

    name: str
    """Its name, which also is its id on its card."""
    peer: Peer
    card: Callable[[], Card]
    store: Store | None = None
    """The store that holds its tasks, under the name `kept_as`; without one, they do not survive a
    restart."""
    kept_as: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which it is addressed."""
        return self.name, self.card().name

    def has_skill(self, skill: str) -> bool:
        """Returns whether a skill is on its card."""
        return any(each.id == skill for each in self.card().skills)


def resident_for(
    said: HeardMessage, residents: Sequence[Resident], *, needs_mention: bool
) -> Resident | None:
    """Returns the agent that a message is for, or None if it is for none of ours. Among several of
    one account, the first is meant if none is named, unless another has the skill."""
    for each in residents:
        if said.mention and is_called(said.mention, each.names):
            return each
    meant = said.addressed or not (needs_mention or said.mention)
    if not meant or not residents:
        return None
    skill = said.lite.params.get("skill", "") if said.lite is not None else ""
    able = (each for each in residents if skill and each.has_skill(skill))
    return next(able, residents[0])
