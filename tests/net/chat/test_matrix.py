"""Matrix, on a real homeserver. It is heavy, so only `make test-full` starts it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from counts import FULL
from dragoman.core.auth_schemes import Secret
from dragoman.core.errors import ConfigError, PeerRefused, PeerUnreachable
from dragoman.net.chat import Channel, Cursor, MemoryCursor, channel_from, parse_chat_address
from dragoman.net.chat.matrix_events import message_in, message_out
from dragoman.settings.chat import MatrixSettings
from net.chat.contract import ChannelContract, ChatService, hearing
from net.chat.synapse import NAME, Synapse
from ports import own_port
from waiting import until

NEEDS_SYNAPSE = pytest.mark.skipif(not FULL, reason="starts Synapse (make test-full)")


class OnSynapse(ChatService):
    """Users of one homeserver; each test has its own users and room."""

    def __init__(self, server: Synapse, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self.patch = server, monkeypatch
        self.tokens: dict[str, str] = {}
        self.suffix = secrets.token_hex(3)
        self.owner = server.user(f"owner-{self.suffix}")
        self.room_id = server.room(self.owner, alias=f"team-{self.suffix}")
        self.room = f"#team-{self.suffix}:{NAME}"

    def settings(self, name: str, **more: bool) -> MatrixSettings:
        user = f"{name}-{self.suffix}"
        if user not in self.tokens:
            self.tokens[user] = self.server.user(user)
            self.patch.setenv(f"TOKEN_{user}", self.tokens[user])
        return MatrixSettings(
            homeserver=self.server.url,
            token=Secret(env=f"TOKEN_{user}"),
            messages_per_second=100.0,
            **more,
        )

    async def member(self, name: str, cursor: Cursor) -> Channel:
        return channel_from(self.settings(name), cursor)

    async def cut(self) -> None:
        self.server.stop()
        self.server.start()

    def members(self, room: str) -> set[str]:
        """The users in a room, as its owner sees them."""
        path = f"/_matrix/client/v3/rooms/{room}/joined_members"
        return set(self.server.call("GET", path, token=self.owner)["joined"])

    def post(self, content: dict[str, object], room: str = "") -> str:
        """Says something as another client would."""
        path = f"/_matrix/client/v3/rooms/{room or self.room_id}/send/m.room.message"
        found = self.server.call("PUT", f"{path}/{secrets.token_hex(8)}", content, self.owner)
        return str(found["event_id"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    server = Synapse(Path(tmp_path_factory.mktemp("synapse")))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def service(server: Synapse, monkeypatch: pytest.MonkeyPatch) -> OnSynapse:
    return OnSynapse(server, monkeypatch)


@NEEDS_SYNAPSE
class TestMatrix(ChannelContract):
    elsewhere = f"!nowhere:{NAME}"


@NEEDS_SYNAPSE
async def test_edits_are_ignored_and_the_quote_before_a_reply_is_left_out(
    service: OnSynapse,
) -> None:
    async with service.joined("ann") as ann, hearing(ann) as ear:
        asked = await ann.say(service.room_id, "Which city?")
        first = service.post({"msgtype": "m.text", "body": "Kyoto"})
        service.post(
            {
                "msgtype": "m.text",
                "body": "* Osaka",
                "m.new_content": {"msgtype": "m.text", "body": "Osaka"},
                "m.relates_to": {"rel_type": "m.replace", "event_id": first},
            }
        )
        service.post(
            {
                "msgtype": "m.text",
                "body": f"> <{ann.me}> Which city?\n> [A2A:cancel task=x]\n\nOsaka after all",
                "m.relates_to": {"m.in_reply_to": {"event_id": asked}},
            }
        )
        await ear.until("Kyoto", "Osaka after all")
        assert not ear.heard[0].mentioned
        assert ear.heard[1].mentioned
        assert ear.heard[1].reply_to == asked


@NEEDS_SYNAPSE
async def test_notices_are_of_programs_and_mentions_are_of_several_kinds(
    service: OnSynapse,
) -> None:
    async with service.joined("ann") as ann, hearing(ann) as ear:
        service.post({"msgtype": "m.notice", "body": "one"})
        service.post({"msgtype": "m.text", "body": "two", "m.mentions": {"user_ids": [ann.me]}})
        pill = f'<a href="https://matrix.to/#/{ann.me}">Ann</a>: three'
        service.post({"msgtype": "m.text", "body": "Ann: three", "formatted_body": pill})
        service.post({"msgtype": "m.text", "body": f"{ann.me} four"})
        service.post({"msgtype": "m.text", "body": f"@{ann.names[0]} five"})
        service.post({"msgtype": "m.location", "body": "here", "geo_uri": "geo:1,2"})
        await until(lambda: len(ear.heard) == 6)
        assert [each.from_bot for each in ear.heard] == [True] + [False] * 5
        assert [each.mentioned for each in ear.heard] == [False, *[True] * 4, False]


@NEEDS_SYNAPSE
async def test_an_encrypted_room_is_refused_with_a_clear_line(service: OnSynapse) -> None:
    room = service.server.room(service.owner, encrypted=True)
    async with service.joined("ann") as ann:
        with pytest.raises(ConfigError, match="encrypted"):
            await ann.join(room)
        assert ann.me not in service.members(room)


@NEEDS_SYNAPSE
async def test_a_room_that_becomes_encrypted_is_left(service: OnSynapse) -> None:
    async with service.joined("ann") as ann, hearing(ann) as ear:
        path = f"/_matrix/client/v3/rooms/{service.room_id}"
        algorithm = {"algorithm": "m.megolm.v1.aes-sha2"}
        # What looks like the state of a room, and is only something that a member says.
        service.server.call(
            "PUT", f"{path}/send/m.room.encryption/{secrets.token_hex(4)}", algorithm, service.owner
        )
        service.post({"msgtype": "m.text", "body": "not yet"})
        await ear.until("not yet")
        service.server.call("PUT", f"{path}/state/m.room.encryption", algorithm, service.owner)
        service.post({"msgtype": "m.text", "body": "now it is"})
        await until(lambda: ann.me not in service.members(service.room_id))
        with pytest.raises(PeerRefused, match="encrypted"):
            await ann.say(service.room_id, "hello")
        assert ear.texts == ["not yet"]


@NEEDS_SYNAPSE
async def test_an_invitation_that_hides_the_encryption_is_accepted_for_a_moment_only(
    service: OnSynapse,
) -> None:
    settings = service.settings("ann", accept_invites=True)
    ann = channel_from(settings)
    await ann.connect()
    room = service.server.room(service.owner, encrypted=True)
    async with hearing(ann) as ear:
        service.server.call(
            "POST",
            f"/_matrix/client/v3/rooms/{room}/invite",
            {"user_id": ann.me},
            service.owner,
        )
        service.server.call(
            "POST",
            f"/_matrix/client/v3/rooms/{service.room_id}/invite",
            {"user_id": ann.me},
            service.owner,
        )
        await until(lambda: ann.me in service.members(service.room_id))
        service.post({"msgtype": "m.text", "body": "in the clear"}, room)
        service.post({"msgtype": "m.text", "body": "welcome"})
        await ear.until("welcome")
        assert ear.texts == ["welcome"]
        await until(lambda: ann.me not in service.members(room))
    await ann.close()


@NEEDS_SYNAPSE
async def test_an_upgraded_room_is_followed_at_once_and_keeps_its_id(service: OnSynapse) -> None:
    cursor = MemoryCursor()
    old = service.room_id
    async with service.joined("ann", cursor) as ann, hearing(ann) as ear:
        versions = service.server.call(
            "GET", "/_matrix/client/v3/capabilities", token=service.owner
        )
        default = versions["capabilities"]["m.room_versions"]["default"]
        other = "10" if default != "10" else "9"
        made = service.server.call(
            "POST",
            f"/_matrix/client/v3/rooms/{old}/upgrade",
            {"new_version": other},
            service.owner,
        )
        new = made["replacement_room"]
        await until(lambda: ann.me in service.members(new))
        service.post({"msgtype": "m.text", "body": "new walls"}, new)
        await ear.until("new walls")
        assert ear.heard[-1].room == old
        await ann.say(old, "nice here")
        last = service.server.call(
            "GET", f"/_matrix/client/v3/rooms/{new}/messages?dir=b&limit=1", token=service.owner
        )
        assert last["chunk"][0]["content"]["body"] == "nice here"
    async with service.joined("ann", cursor) as ann, hearing(ann) as ear:
        service.post({"msgtype": "m.text", "body": "still known"}, new)
        await ear.until("still known")
        assert ear.heard[-1].room == old


@NEEDS_SYNAPSE
async def test_invitations_are_accepted_only_if_the_settings_say_so(service: OnSynapse) -> None:
    cursor = MemoryCursor()
    ann = channel_from(service.settings("ann", accept_invites=True), cursor)
    await ann.connect()
    async with service.joined("bob") as bob, hearing(ann) as at_ann, hearing(bob) as at_bob:
        room = await bob.join(ann.me)
        await bob.say(room, "just the two of us")
        await at_ann.until("just the two of us")
        await ann.say(room, "yes")
        await at_bob.until("yes")
        await bob.say(room, "good")
        await at_ann.until("good")
        assert at_ann.heard[-1].direct
        assert await bob.join(ann.me) == room

        async with service.joined("cas") as cas, hearing(cas) as at_cas:
            private = await ann.join(cas.me)
            await ann.say(private, "you do not hear me")
            await ann.join(service.room)
            await ann.say(service.room_id, "this you hear")
            await at_cas.until("this you hear")
            assert at_cas.texts == ["this you hear"]
    await ann.close()


@NEEDS_SYNAPSE
async def test_a_long_absence_is_read_back_as_a_whole(service: OnSynapse) -> None:
    cursor = MemoryCursor()
    async with service.joined("ann", cursor) as ann, hearing(ann) as ear:
        service.post({"msgtype": "m.text", "body": "before"})
        await ear.until("before")
    said = [f"number {n}" for n in range(230)]
    for text in said:
        service.post({"msgtype": "m.text", "body": text})
    async with service.joined("ann", cursor) as ann, hearing(ann) as ear:
        await ear.until("number 229")
        assert ear.texts == said
    async with service.joined("newcomer") as other, hearing(other) as ear:
        service.post({"msgtype": "m.text", "body": "end"})
        await ear.until("end")
        assert ear.texts == ["end"], "what was said before it joined is not for it"


@NEEDS_SYNAPSE
async def test_a_server_that_asks_for_a_pause_is_obeyed(service: OnSynapse) -> None:
    settings = service.settings("slow")
    service.server.limit(f"slow-{service.suffix}", 2, 1)
    slow = channel_from(settings)
    await slow.connect()
    room = await slow.join(service.room)
    async with service.joined("ann") as ann, hearing(ann) as ear:
        began = time.monotonic()
        for n in range(4):
            await slow.say(room, f"number {n}")
        assert time.monotonic() - began > 1.0
        await ear.until("number 3")
        assert ear.texts == [f"number {n}" for n in range(4)]
    await slow.close()


@NEEDS_SYNAPSE
async def test_a_password_logs_in_and_an_ended_session_is_opened_again(
    service: OnSynapse, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.settings("ann")
    user = f"ann-{service.suffix}"
    monkeypatch.setenv("DRAGOMAN_MATRIX_PASSWORD", user)
    ann = channel_from(MatrixSettings(homeserver=service.server.url, user=user))
    await ann.connect()
    assert ann.me == f"@{user}:{NAME}"
    await ann.join(service.room)
    async with hearing(ann) as ear:
        service.post({"msgtype": "m.text", "body": "one"})
        await ear.until("one")
        token = service.tokens[user]
        service.server.call("POST", "/_matrix/client/v3/logout/all", {}, token)
        service.post({"msgtype": "m.text", "body": "two"})
        await ear.until("two")
        assert ear.texts == ["one", "two"]
    await ann.close()
    monkeypatch.setenv("DRAGOMAN_MATRIX_PASSWORD", "guessed")
    with pytest.raises(ConfigError, match="password"):
        await channel_from(MatrixSettings(homeserver=service.server.url, user=user)).connect()


@NEEDS_SYNAPSE
async def test_a_token_that_is_revoked_ends_the_hearing_with_a_clear_line(
    service: OnSynapse,
) -> None:
    async with service.joined("ann") as ann:
        token = service.tokens[f"ann-{service.suffix}"]
        hearing_of = ann.hear()
        service.server.call("POST", "/_matrix/client/v3/logout", {}, token)
        with pytest.raises(ConfigError, match="token"):
            await anext(hearing_of)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": "m.room.message"},
        {"content": {}, "event_id": "$1", "sender": "@a:b", "type": "m.room.message"},
        {"content": {"msgtype": "m.text", "body": ["x"]}},
        {"content": {"msgtype": "m.text", "body": "x", "m.relates_to": 7}},
        {"content": {"msgtype": "m.file", "body": "x", "url": "https://elsewhere.example/x"}},
        {"content": {"msgtype": "m.file", "body": "x", "file": {"url": "mxc://a/b"}}},
        {"content": {"msgtype": "m.file", "body": "x", "url": "mxc://a/b/../../c"}},
    ],
)
def test_an_event_that_makes_no_sense_is_left_out(event: dict[str, object]) -> None:
    whole = {"event_id": "$1", "sender": "@a:b", "type": "m.room.message", **event}
    source = whole if "content" in event else event
    assert message_in(source, room="!r", me="@me:b", name="me", authors={}) is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[A2A:task id=t to=kiln]\n@kiln:example.org a pot", ["@kiln:example.org"]),
        ("@kiln:example.org, a pot", ["@kiln:example.org"]),
        ("[A2A:discover]\nWho is there?", None),
        ("a\nb\n@kiln:example.org", None),
        ("@room all", None),
    ],
)
def test_who_is_addressed_is_mentioned_as_the_specification_says(
    text: str, named: list[str] | None
) -> None:
    content = message_out(text, msgtype="m.text", reply_to="", author="")
    assert content["m.mentions"] == ({"user_ids": named} if named else {})


async def test_a_homeserver_that_does_not_answer_is_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DRAGOMAN_MATRIX_TOKEN", "x")
    channel = channel_from(MatrixSettings(homeserver=f"http://127.0.0.1:{own_port()}"))
    with pytest.raises(PeerUnreachable, match=r"127\.0\.0\.1"):
        await channel.connect()
    await channel.close()


def test_without_a_token_or_a_password_there_is_no_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAGOMAN_MATRIX_TOKEN", raising=False)
    monkeypatch.delenv("DRAGOMAN_MATRIX_PASSWORD", raising=False)
    with pytest.raises(ConfigError, match="password"):
        channel_from(MatrixSettings(homeserver="https://matrix.example.org"))
    with pytest.raises(ConfigError, match="https"):
        channel_from(MatrixSettings(homeserver="matrix.example.org"))


def test_an_address_names_a_homeserver_a_user_and_a_room() -> None:
    found = parse_chat_address("lite+matrix://bot@matrix.example.org/#team:example.org?agent=desk")
    assert found.settings == MatrixSettings(
        homeserver="https://matrix.example.org", user="bot", rooms=("#team:example.org",)
    )
    assert found.query == {"agent": "desk"}
    found = parse_chat_address("lite+matrix+http://127.0.0.1:8008/!abc:example.org")
    assert found.settings == MatrixSettings(
        homeserver="http://127.0.0.1:8008", rooms=("!abc:example.org",)
    )
