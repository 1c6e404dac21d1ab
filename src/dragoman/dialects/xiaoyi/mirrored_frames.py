"""Recognises frames that an agent sends over more than one of its links.

Some agents send every frame over all their links, with ids of their own for each link, so only the
content shows that two frames are one. Others use one link at a time, and two equal frames are then
two pieces of the answer. The order tells them apart: an agent that mirrors its frames sends the
same sequence over every link, so a copy is the frame that its link has to bring next.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from . import wire

MAX_COPY_DELAY_MS = 5_000
"""How much later than a frame its copy may come, from an agent that has not sent copies before."""
MAX_FRAMES_AWAITING_COPIES = 10_000
"""The frames of one task that another link may still bring."""
MAX_KNOWN_FRAMES = 10_000
"""The frames that are recognised when they come again with the same ids."""


class RepeatedFrames:
    """Recognises frames that arrive with the same ids over another link.

    Equal frames over one link are not repetitions: an agent that uses the same id for all its
    responses may well send the same word twice.
    """

    def __init__(self, most: int = MAX_KNOWN_FRAMES) -> None:
        self._most = most
        self._counts: OrderedDict[object, dict[str, int]] = OrderedDict()

    def __call__(self, link: str, key: object) -> bool:
        """Returns whether another link has brought this frame before."""
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = {}
            if len(self._counts) > self._most:
                self._counts.popitem(last=False)
        counts[link] = counts.get(link, 0) + 1
        return any(count >= counts[link] for other, count in counts.items() if other != link)


class OpenLinks:
    """The open links of an agent, and whether it has been seen to mirror its frames."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.mirror = False


class TaskFrames:
    """The frames of one task that other links may still bring."""

    def __init__(self, links: OpenLinks, now: Callable[[], int]) -> None:
        self._links, self._now = links, now
        self._frames: deque[tuple[int, int]] = deque()
        """The content of each frame, and when it came."""
        self._first = 0
        """The number of the oldest of them."""
        self._next = dict.fromkeys(links.names, 0)
        """The number of the frame that each link has to bring next."""

    @property
    def _end(self) -> int:
        return self._first + len(self._frames)

    def link_opened(self, link: str) -> None:
        """Expects no copies of earlier frames over a new link."""
        self._next[link] = self._end

    def link_closed(self, link: str) -> None:
        """Expects no copies of earlier frames, when an agent that uses one link at a time goes on
        over another one."""
        self._next.pop(link, None)
        if not self._links.mirror:
            self._next = dict.fromkeys(self._next, self._end)

    def is_copy(self, link: str, response: wire.ResponseIn, *, repeated: bool) -> bool:
        """Returns whether another link has brought this response. A `repeated` one has the same
        ids, so it certainly has."""
        if len(self._links.names) < 2 and not self._frames:
            return repeated
        content, now = content_of(response), self._now()
        self._forget(now)
        end = self._end
        number = max(self._next.get(link, end), self._first)
        if number < end:
            expected, came_at = self._frames[number - self._first]
            timely = self._links.mirror or now - came_at <= MAX_COPY_DELAY_MS
            if expected == content and timely:
                self._next[link] = number + 1
                self._links.mirror = self._links.mirror or not repeated
                return True
        if repeated:
            self._next[link] = end
            return True
        if len(self._links.names) > 1:
            self._frames.append((content, now))
            end += 1
        self._next[link] = end
        return False

    def _forget(self, now: int) -> None:
        """Drops the frames that every link has brought, or that no copy can follow any more."""
        wanted = min(self._next.values(), default=self._end)
        while self._frames and (
            self._first < wanted
            or len(self._frames) > MAX_FRAMES_AWAITING_COPIES
            or (not self._links.mirror and now - self._frames[0][1] > MAX_COPY_DELAY_MS)
        ):
            self._frames.popleft()
            self._first += 1


def content_of(response: wire.ResponseIn) -> int:
    """Returns a digest of what a response says, without any of its ids."""
    result, failure = response.result, response.failure
    if result is None:
        return hash((failure.code, failure.message) if failure is not None else None)
    status, artifact = result.status, result.artifact
    message = status.message if status is not None else None
    return hash(
        wire.encode(
            (
                result.append,
                bool(result.final or result.is_final),
                status.state if status is not None else None,
                message.parts if message is not None else None,
                artifact.parts if artifact is not None else None,
            )
        )
    )
