"""IRC, on a real server."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from dragoman.core.auth_schemes import Secret
from dragoman.core.errors import ConfigError, PeerUnreachable
from dragoman.net.chat import Channel, Cursor, channel_from, parse_chat_address
from dragoman.settings.chat import IrcSettings
from net.chat.contract import ChannelContract, ChatService, hearing
from net.chat.ngircd import NEEDS_NGIRCD, Ngircd
from ports import own_port
from waiting import until

pytestmark = pytest.mark.slow  # starts ngircd


class OnNgircd(ChatService):
    """Users of one ngircd."""

    room = "team"
    keeps = False
    keyed = False
    marks_replies = False

    def __init__(self, server: Ngircd) -> None:
        self.server = server

    def settings(self, name: str) -> IrcSettings:
        return IrcSettings(
            host="127.0.0.1",
            port=self.server.port,
            tls=False,
            nick=name,
            messages_per_second=200.0,
        )

    async def member(self, name: str, cursor: Cursor) -> Channel:
        return channel_from(self.settings(name), cursor)

    async def cut(self) -> None:
        self.server.stop()
        self.server.start()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Ngircd]:
    server = Ngircd(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def service(server: Ngircd) -> ChatService:
    return OnNgircd(server)


@NEEDS_NGIRCD
class TestIrc(ChannelContract):
    pass


@NEEDS_NGIRCD
async def test_two_in_a_room_and_a_private_message_are_direct(service: ChatService) -> None:
    async with (
        service.joined("ann") as ann,
        service.joined("bob") as bob,
        hearing(ann) as at_ann,
        hearing(bob) as at_bob,
    ):
        assert bob.me == "bob"
        await bob.say("#team", "Ann: are we alone?")
        await at_ann.until("Ann: are we alone?")
        assert at_ann.heard[-1].direct
        assert at_ann.heard[-1].mentioned
        await ann.say(await ann.join("@bob"), "yes, ann")
        await at_bob.until("yes, ann")
        heard = at_bob.heard[-1]
        assert (heard.room, heard.direct, heard.mentioned) == ("ann", True, False)
        await bob.say(heard.room, "good")
        await at_ann.until("good")


@NEEDS_NGIRCD
async def test_a_nick_that_is_taken_gets_an_underscore_and_is_taken_back_later(
    service: ChatService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.net.chat.irc_session.SILENCE", 0.3)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(service.joined("ann"))
        second = await stack.enter_async_context(service.joined("ann"))
        bob = await stack.enter_async_context(service.joined("bob"))
        ear = await stack.enter_async_context(hearing(second))
        assert second.names == ("ann_",)
        assert second.me == "ann_"
        await bob.say("#team", "ann_: hello")
        await ear.until("ann_: hello")
        assert ear.heard[-1].mentioned
        await first.close()
        await until(lambda: second.names == ("ann",))
        await bob.say("#team", "ann: hello again")
        await ear.until("ann: hello again")
        assert ear.heard[-1].mentioned


@NEEDS_NGIRCD
async def test_a_line_that_is_too_long_for_the_server_is_never_sent(service: ChatService) -> None:
    async with (
        service.joined("a-nick-of-20-letters") as ann,
        service.joined("bob") as bob,
        hearing(bob) as ear,
    ):
        await ann.say("#team", "x" * ann.limits.text)
        await until(lambda: ear.texts)
        assert ear.texts == ["x" * ann.limits.text]


@NEEDS_NGIRCD
async def test_the_password_of_a_server_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Ngircd(tmp_path, password="open-sesame")
    server.start()
    monkeypatch.setenv("IRC_TEST", "open-sesame")
    try:
        settings = IrcSettings(
            host="127.0.0.1",
            port=server.port,
            tls=False,
            login="server",
            password=Secret(env="IRC_TEST"),
        )
        channel = channel_from(settings)
        await channel.connect()
        await channel.close()
        monkeypatch.setenv("IRC_TEST", "guessed")
        with pytest.raises((ConfigError, PeerUnreachable), match=r"127\.0\.0\.1"):
            await channel_from(settings).connect()
    finally:
        server.stop()


@NEEDS_NGIRCD
async def test_a_server_without_sasl_is_told_from_a_wrong_password(
    server: Ngircd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_IRC_PASSWORD", "secret")
    with pytest.raises(ConfigError, match="no SASL"):
        await channel_from(IrcSettings(host="127.0.0.1", port=server.port, tls=False)).connect()


async def test_a_server_that_does_not_answer_is_unreachable() -> None:
    with pytest.raises(PeerUnreachable, match=r"127\.0\.0\.1"):
        await channel_from(IrcSettings(host="127.0.0.1", port=own_port(), tls=False)).connect()


def test_an_address_names_a_network_a_nick_and_a_room() -> None:
    found = parse_chat_address("lite+irc://desk@irc.example.org:6668/#team?agent=helper")
    assert found.settings == IrcSettings(
        host="irc.example.org", port=6668, tls=False, nick="desk", rooms=("#team",)
    )
    assert found.query == {"agent": "helper"}
    found = parse_chat_address("lite+ircs://irc.example.org/team")
    assert found.settings == IrcSettings(host="irc.example.org", tls=True, rooms=("team",))


class ScriptedServer:
    """A server with accounts, which ngircd does not have."""

    def __init__(self, password: str) -> None:
        self.word = base64.b64encode(f"\0ann\0{password}".encode()).decode()
        self.said: list[str] = []
        self.writer: asyncio.StreamWriter | None = None
        self.connections = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
            yield server.sockets[0].getsockname()[1]
            await until(lambda: not self.connections)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.connections += 1
        async for raw in reader:
            line = raw.decode().strip()
            self.said.append(line)
            for answer in self.answers(line):
                writer.write(f"{answer}\r\n".encode())
        writer.close()
        self.connections -= 1

    def answers(self, line: str) -> list[str]:
        me, _, rest = ":irc.example", *line.partition(" ")[1:]
        match line.split():
            case ["CAP", "LS", *_]:
                return [f"{me} CAP * LS :multi-prefix sasl account-tag server-time"]
            case ["CAP", "REQ", *_]:
                return [f"{me} CAP * ACK {rest.partition(' ')[2]}"]
            case ["AUTHENTICATE", "PLAIN"]:
                return ["AUTHENTICATE +"]
            case ["AUTHENTICATE", word] if word == self.word:
                return [
                    f"{me} 900 * ann!a@h ann :ok",
                    f"{me} 903 * :SASL authentication successful",
                ]
            case ["AUTHENTICATE", _]:
                return [f"{me} 904 * :Failed"]
            case ["CAP", "END"]:
                return [f"{me} 001 ann :Welcome"]
            case ["JOIN", room]:
                return [f":ann!a@h JOIN {room}", f"{me} 366 ann {room} :End of /NAMES list."]
        return []

    def send(self, line: str, encoding: str = "utf-8") -> None:
        assert self.writer is not None
        self.writer.write(f"{line}\r\n".encode(encoding))


async def test_sasl_proves_who_we_are_and_accounts_are_the_identity_of_senders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DRAGOMAN_IRC_PASSWORD", "open-sesame")
    script = ScriptedServer("open-sesame")
    async with script.open() as port:
        settings = IrcSettings(host="127.0.0.1", port=port, tls=False, nick="ann")
        channel = channel_from(settings)
        await channel.connect()
        await channel.join("team")
        assert channel.me == "ann"
        async with hearing(channel) as ear:
            when = "time=2026-11-17T10:00:00.000Z"
            script.send(f"@account=bob;{when} :bobby!b@h PRIVMSG #team :one")
            script.send(f"@{when} :bob!b@h PRIVMSG #team :two")
            script.send("@bot;account=bob :bobby!b@h PRIVMSG ann :three")
            script.send(":bobby!b@h NOTICE #team :never heard")
            script.send(":bobby!b@h PRIVMSG #team :\x01VERSION\x01")
            script.send(":bobby!b@h PRIVMSG #team :café", "latin-1")
            await ear.until("café")
        await channel.close()
        found = [(each.sender, each.sender_name, each.room, each.text) for each in ear.heard[:3]]
        assert found == [
            ("bob", "bobby", "#team", "one"),
            ("~bob", "bob", "#team", "two"),
            ("bob", "bobby", "bobby", "three"),
        ]
        assert [each.from_bot for each in ear.heard] == [False, False, True, False]
        assert ear.heard[0].at == 1794909600000

        script.word = "another"
        with pytest.raises(ConfigError, match="password is wrong"):
            await channel_from(settings).connect()


async def test_nickserv_is_told_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_IRC_PASSWORD", "open-sesame")
    script = ScriptedServer("")
    async with script.open() as port:
        channel = channel_from(
            IrcSettings(host="127.0.0.1", port=port, tls=False, nick="ann", login="nickserv")
        )
        await channel.connect()
        await until(lambda: "PRIVMSG NickServ :IDENTIFY open-sesame" in script.said)
        await channel.close()
