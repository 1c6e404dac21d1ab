"""People and programs that use no markers: a mention opens a task, a reply answers a question, and
`cancel` ends a task."""

from __future__ import annotations

import hashlib

from dragoman.core.operations import CancelTask, SendMessage
from dragoman.dialects.lite.callee import LiteCallee

from .heard_message import HeardMessage
from .loop_guard import LoopGuard
from .requests import RoomRequests

_CANCEL = frozenset(("cancel", "stop", "abort", "取消", "停止", "中止"))


class PlainTalk:
    """Understands texts without a marker."""

    def __init__(self, requests: RoomRequests, guard: LoopGuard) -> None:
        self._requests, self._guard = requests, guard

    def concerns_us(self, said: HeardMessage) -> bool:
        """Returns whether a text is for an agent of ours, and not what people say to each other."""
        requests = self._requests
        return requests.meant(said) is not None or bool(requests.asked_in(said.chat.reply_to))

    async def hear(self, said: HeardMessage) -> None:
        """Handles a text that concerns us: an answer, a cancel, or a new request."""
        requests, chat, text = self._requests, said.chat, said.text.strip()
        own = requests.own(said)
        waiting = [each for each in own if each[1].waits]
        asked = requests.asked_in(chat.reply_to)
        replied = [each for each in waiting if each[1].task_id == asked]
        meant = requests.meant(said)
        if not replied and meant is None:
            return  # a reply to a question of somebody else
        verb, _, which = text.partition(" ")
        if _is_cancel(text) and said.person:
            if own:
                newest = (replied or waiting or own)[-1][1]
                await requests.cancel_task(said, CancelTask(task_id=newest.origin.id))
            else:
                await requests.note(said, "There is nothing to cancel.")
            return
        if _is_cancel(verb) and requests.is_operator(said):
            await requests.cancel_task(said, CancelTask(task_id=which.strip()))
            return
        chosen = replied or waiting
        if len(chosen) > 1:
            names = ", ".join(each[1].origin.id for each in chosen)
            await requests.note(
                said, f"Several tasks wait for you: {names}. Reply to one of their questions."
            )
        elif chosen:
            ((resident, answer),) = chosen
            reply = _asked(answer.session, text, answer.origin.id, chat.id)
            await requests.continue_task(said, resident, answer, reply, None)
        elif (
            meant is not None
            and text  # a file alone waits for a text
            and not requests.draining
            and (said.person or self._guard.allows(*said.whose))
            and await requests.admits(said)
        ):
            made = f"m-{hashlib.sha256(chat.id.encode()).hexdigest()[:8]}"
            origin, session = requests.origin(said, made, marked=False), LiteCallee()
            request = _asked(session, text, made, chat.id)
            await requests.open(said, meant, origin, session, request, None)


def _asked(session: LiteCallee, text: str, task: str, message_id: str) -> SendMessage:
    op = session.hear_plain(text, (), task, message_id).op
    assert isinstance(op, SendMessage)  # noqa: S101  a text is a message
    return op


def _is_cancel(text: str) -> bool:
    return text.strip(" .!。！").casefold() in _CANCEL
