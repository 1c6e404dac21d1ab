"""One connection to an IRC server, from its login until it is lost."""

from __future__ import annotations

import asyncio
import base64
import secrets
import ssl
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

import irc.client
import irc.client_aio
import irc.connection
import irc.strings
from jaraco.stream.buffer import LenientDecodingLineBuffer

from dragoman.core.errors import (
    ConfigError,
    DragomanError,
    PeerMisbehaved,
    PeerRefused,
    PeerUnreachable,
    TooLarge,
)
from dragoman.core.log import Logger
from dragoman.settings.chat import IrcSettings

from .channel import ChatMessage, mentions

log = Logger("chat")

ANSWER = 30.0
"""The seconds in which the server must answer."""
SILENCE = 90.0
"""The seconds after which a silent server is asked whether it is there."""
LONGEST_LINE = 64 * 1024
CAPABILITIES = ("sasl", "account-tag", "message-tags", "server-time")
_LOGIN_FAILED = {
    "passwdmismatch": "the password is wrong",
    "yourebannedcreep": "we are banned",
    "erroneusnickname": "the nick is not valid",
    "saslfail": "the password is wrong",
    "sasltoolong": "the password is too long",
    "nicklocked": "the account is locked",
}
_NOT_JOINED = {
    "nosuchchannel": "there is no such channel",
    "toomanychannels": "we are in too many channels",
    "channelisfull": "it is full",
    "inviteonlychan": "one has to be invited",
    "bannedfromchan": "we are banned",
    "badchannelkey": "it has a key, which stands behind its name: `#room key`",
    "badchanmask": "its name is not valid",
    "nochanmodes": "it is for registered nicks only",
}
_NOT_SENT = {
    "nosuchnick": "there is nobody of this name",
    "nosuchchannel": "there is no such channel",
    "cannotsendtochan": "we may not speak there",
    "notonchannel": "we are not in it",
    "toomanytargets": "it has too many members",
}

irc.client.log.setLevel("WARNING")  # below that it logs every line, passwords as well
irc.client_aio.log.setLevel("WARNING")


class _Buffer(LenientDecodingLineBuffer):  # type: ignore[misc]  # untyped
    def feed(self, bytes: bytes) -> None:
        if len(self) + len(bytes) > LONGEST_LINE and b"\n" not in bytes:
            raise PeerMisbehaved("The server sends a line without end")
        super().feed(bytes)


class _Connection(irc.client_aio.AioConnection):  # type: ignore[misc]  # untyped
    buffer_class = _Buffer


class IrcSession:
    """A login. When it is lost, another one takes its place."""

    def __init__(
        self, settings: IrcSettings, password: str, on_message: Callable[[ChatMessage], None]
    ) -> None:
        self._settings, self._password, self._on_message = settings, password, on_message
        self.nick = settings.nick
        self.members: dict[str, set[str]] = {}
        """The nicks in each room that we are in."""
        self.overhead = 0
        """The bytes that the server puts around a line of ours when it passes it on."""
        self.lost = asyncio.Event()
        self._welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        """What is awaited: `join:ROOM`, `say:ROOM` or `ping:TOKEN`."""
        self._capabilities: set[str] = set()
        self._heard_at = time.monotonic()
        reactor = irc.client_aio.AioReactor(
            on_connect=lambda *_: self._connection.cap("LS"), loop=asyncio.get_running_loop()
        )
        reactor.connection_class = _Connection
        self._connection: Any = reactor.server()
        handlers = {
            "cap": self._on_cap,
            "authenticate": self._on_authenticate,
            "saslsuccess": self._on_saslsuccess,
            "welcome": self._on_welcome,
            "nicknameinuse": self._on_nickname_in_use,
            "error": self._on_error,
            "disconnect": self._on_disconnect,
            "pong": self._on_pong,
            "namreply": self._on_names,
            "endofnames": self._on_end_of_names,
            "join": self._on_join,
            "part": self._on_part,
            "kick": self._on_kick,
            "quit": self._on_quit,
            "nick": self._on_nick,
            "pubmsg": self._on_public,
            "privmsg": self._on_private,
        }
        reactor.add_global_handler("all_events", self._on_any)
        for name, handler in handlers.items():
            reactor.add_global_handler(name, handler)

    @property
    def identity(self) -> str:
        """Our own identity, as others see it."""
        if "account-tag" not in self._capabilities:
            return self.nick
        return (self._settings.user or self._settings.nick) if self._password else f"~{self.nick}"

    async def log_in(self) -> None:
        """Connects and proves who we are. Raises `ConfigError` if the server does not take us, and
        `PeerUnreachable` if it does not answer."""
        settings = self._settings
        tls = await asyncio.to_thread(ssl.create_default_context) if settings.tls else None
        try:
            async with asyncio.timeout(ANSWER):
                await self._connection.connect(
                    settings.host,
                    settings.port or (6697 if settings.tls else 6667),
                    settings.nick,
                    password=self._password if settings.login == "server" else None,
                    connect_factory=irc.connection.AioFactory(ssl=tls),
                )
                await self._welcome
        except (OSError, TimeoutError) as exc:
            self.hang_up()
            why = str(exc) or "there is no answer"
            raise PeerUnreachable(f"{settings.host} cannot be reached: {why}") from exc
        except BaseException:
            self.hang_up()
            raise
        self.nick = self._connection.get_nickname()
        if self._password and settings.login == "nickserv":
            account = f"{settings.user} " if settings.user else ""
            self._send("PRIVMSG", "NickServ", f":IDENTIFY {account}{self._password}")
        log.info("On IRC", host=settings.host, nick=self.nick)

    async def join(self, room: str, key: str) -> None:
        """Joins a room. Raises `ConfigError` if we may not."""
        waiting = self._await(f"join:{room}")
        try:
            self._send("JOIN", room, *([key] if key else []))
            await self._first(waiting)
        except PeerRefused as exc:
            raise ConfigError(f"{room} cannot be joined: {exc.message}.") from None
        finally:
            self._waiting.pop(f"join:{room}", None)

    def say(self, room: str, line: str) -> None:
        """Sends one line."""
        self._send("PRIVMSG", room, f":{line}")

    async def confirm(self, room: str) -> None:
        """Returns when the server has dealt with what was said to a room. Raises `PeerRefused` if
        it did not take it: its answer to a `PING` comes after what it has to say about that."""
        token = secrets.token_hex(8)
        refused, answered = self._await(f"say:{folded(room)}"), self._await(f"ping:{token}")
        try:
            self._send("PING", token)
            await self._first(refused, answered)
        finally:
            self._waiting.pop(f"ping:{token}", None)
            self._waiting.pop(f"say:{folded(room)}", None)

    async def watch(self) -> None:
        """Returns when the connection is lost, or silent for too long."""
        asked = False
        while not self.lost.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(SILENCE / 3):
                    await self.lost.wait()
            silent = time.monotonic() - self._heard_at >= SILENCE
            if silent and asked:
                return
            with suppress(DragomanError):
                if silent:
                    self._send("PING", "still-there")
                elif self.nick != self._settings.nick:
                    self._send("NICK", self._settings.nick)  # the other one may have gone
            asked = silent

    def hang_up(self) -> None:
        """Ends the connection, and what waits for it."""
        self.lost.set()
        with suppress(Exception):  # it is over, whatever the package makes of that
            self._connection.disconnect()
        for future in (*self._waiting.values(), self._welcome):
            _fail(future, PeerUnreachable("The connection to the IRC server is lost", sent=True))
        self._waiting.clear()

    def _send(self, *items: str) -> None:
        if self.lost.is_set():
            raise PeerUnreachable("The connection to the IRC server is lost")
        try:
            self._connection.send_items(*items)
        except irc.client.MessageTooLong:
            raise TooLarge("A line has at most 512 bytes on IRC") from None
        except (irc.client.IRCError, OSError) as exc:
            raise PeerUnreachable(f"The IRC server is gone: {exc}") from None

    def _await(self, what: str) -> asyncio.Future[None]:
        future = self._waiting[what] = asyncio.get_running_loop().create_future()
        return future

    async def _first(self, *futures: asyncio.Future[None]) -> None:
        """Waits for one of these, and raises what went wrong."""
        done, _ = await asyncio.wait(futures, timeout=ANSWER, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            raise PeerUnreachable("The IRC server does not answer", sent=True)
        for future in done:
            future.result()

    # What the server says. None of it may wait.

    def _on_any(self, _: object, event: Any) -> None:
        self._heard_at = time.monotonic()
        if event.type in _LOGIN_FAILED:
            self._refuse_login(_LOGIN_FAILED[event.type])
        about = folded(event.arguments[0]) if event.arguments else ""
        if event.type in _NOT_JOINED and f"join:{about}" in self._waiting:
            _fail(self._waiting[f"join:{about}"], PeerRefused(_NOT_JOINED[event.type]))
        if event.type in _NOT_SENT and f"say:{about}" in self._waiting:
            why = f"{event.arguments[0]}: {_NOT_SENT[event.type]}"
            _fail(self._waiting[f"say:{about}"], PeerRefused(why))

    def _refuse_login(self, why: str) -> None:
        host, nick = self._settings.host, self._settings.nick
        _fail(self._welcome, ConfigError(f"{host} does not take us as {nick}: {why}."))

    def _settle(self, what: str) -> None:
        future = self._waiting.get(what)
        if future is not None and not future.done():
            future.set_result(None)

    def _on_cap(self, _: object, event: Any) -> None:
        answer = event.arguments[0].upper() if event.arguments else ""
        listed = event.arguments[-1].split()
        sasl = bool(self._password) and self._settings.login == "sasl"
        if answer == "LS":
            wanted = [each for each in CAPABILITIES if each in listed and (sasl or each != "sasl")]
            if sasl and "sasl" not in wanted:
                self._refuse_login('it has no SASL; set login = "nickserv" or "server"')
            elif wanted:
                self._send("CAP", "REQ", f":{' '.join(wanted)}")
                return
        elif answer == "ACK":
            self._capabilities |= {*listed}
            if sasl and "sasl" in listed:
                self._send("AUTHENTICATE", "PLAIN")
                return
        if answer in ("LS", "ACK", "NAK"):
            self._send("CAP", "END")

    def _on_authenticate(self, _: object, __: Any) -> None:
        account = self._settings.user or self._settings.nick
        word = base64.b64encode(f"\0{account}\0{self._password}".encode()).decode()
        for start in range(0, len(word) + 1, 400):  # a full last piece is followed by an empty one
            self._send("AUTHENTICATE", word[start : start + 400] or "+")

    def _on_saslsuccess(self, _: object, __: Any) -> None:
        self._send("CAP", "END")

    def _on_welcome(self, _: object, __: Any) -> None:
        if not self._welcome.done():
            self._welcome.set_result(None)

    def _on_nickname_in_use(self, _: object, event: Any) -> None:
        if self._welcome.done() or not event.arguments:
            return
        taken = event.arguments[0]
        if len(taken) > len(self._settings.nick) + 2:
            self._refuse_login("the nick is in use")
        else:
            self._send("NICK", f"{taken}_")

    def _on_error(self, _: object, event: Any) -> None:
        _fail(self._welcome, PeerUnreachable(f"{self._settings.host}: {event.target}"))

    def _on_disconnect(self, _: object, __: Any) -> None:
        self.hang_up()

    def _on_pong(self, _: object, event: Any) -> None:
        for token in (event.target, *event.arguments):
            self._settle(f"ping:{token}")

    def _on_names(self, _: object, event: Any) -> None:
        if len(event.arguments) >= 3:
            members = self.members.setdefault(folded(event.arguments[1]), set())
            members |= {nick.lstrip("~&@%+!") for nick in event.arguments[2].split()}

    def _on_end_of_names(self, _: object, event: Any) -> None:
        if event.arguments:
            self._settle(f"join:{folded(event.arguments[0])}")

    def _on_join(self, _: object, event: Any) -> None:
        self.members.setdefault(folded(event.target), set()).add(event.source.nick)
        if event.source.nick == self.nick:
            size = len(f":{event.source} PRIVMSG {event.target} :\r\n".encode())
            self.overhead = max(self.overhead, size)

    def _on_part(self, _: object, event: Any) -> None:
        self._left(event.source.nick, [folded(event.target)])

    def _on_kick(self, _: object, event: Any) -> None:
        if event.arguments:
            self._left(event.arguments[0], [folded(event.target)])

    def _on_quit(self, _: object, event: Any) -> None:
        self._left(event.source.nick, [*self.members])

    def _left(self, nick: str, rooms: Iterable[str]) -> None:
        for room in rooms:
            self.members.get(room, set()).discard(nick)
            if nick == self.nick and self.members.pop(room, None) is not None:
                log.warning("We were removed from a room", room=room)

    def _on_nick(self, _: object, event: Any) -> None:
        old, new = event.source.nick, event.target
        for members in self.members.values():
            if old in members:
                members.discard(old)
                members.add(new)
        if old == self.nick:
            self.nick = new

    def _on_public(self, _: object, event: Any) -> None:
        self._take(event, folded(event.target))

    def _on_private(self, _: object, event: Any) -> None:
        if event.source and "!" in event.source:  # and not the server itself
            self._take(event, event.source.nick)

    def _take(self, event: Any, room: str) -> None:
        tags = {each["key"]: each["value"] or "" for each in event.tags or ()}
        nick, text, own = event.source.nick, event.arguments[0], self.nick.lower()
        by_account = "account-tag" in self._capabilities
        self._on_message(
            ChatMessage(
                id=tags.get("msgid") or secrets.token_hex(8),
                room=room,
                sender=(tags.get("account") or f"~{nick}") if by_account else nick,
                sender_name=nick,
                text=text,
                direct=room == nick or len(self.members.get(room, ())) == 2,
                mentioned=text.lower().startswith((f"{own}:", f"{own},")) or mentions(own, text),
                from_bot="bot" in tags,
                at=_time_in(tags.get("time", "")),
            )
        )


def _fail(future: asyncio.Future[None], why: DragomanError) -> None:
    if not future.done():
        future.set_exception(why)
        future.exception()  # it may be that nobody waits for it


def folded(name: str) -> str:
    """Returns a name as servers compare it (RFC 2812 §2.2)."""
    return str(irc.strings.lower(name))


def _time_in(text: str) -> int:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return time.time_ns() // 1_000_000
