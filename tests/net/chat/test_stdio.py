"""One JSON object per line, both ways."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from dragoman.net.chat import Channel, Cursor, parse_chat_address
from dragoman.net.chat.stdio import StdioChannel
from dragoman.settings.chat import StdioSettings
from net.chat.contract import ChannelContract, ChatService

ECHO = """
import asyncio
from dragoman.net.chat import channel_from
from dragoman.settings.chat import StdioSettings

async def main():
    channel = channel_from(StdioSettings(user="echo"))
    await channel.connect()
    async for message in channel.hear():
        await channel.say(message.room, message.text.upper(), reply_to=message.id)
        for file in message.files:
            body = await channel.fetch_file(file, 100)
            await channel.send_file(message.room, file.name, file.media_type, body[::-1])

asyncio.run(main())
"""


class Pipes(ChatService):
    """A script that passes each line on to the other members, as a chat program would."""

    room = "team"
    keeps = False
    keyed = False

    def __init__(self) -> None:
        self.ends: list[BinaryIO] = []
        self.members: dict[str, BinaryIO] = {}
        self.threads: list[threading.Thread] = []
        self.lock = threading.Lock()

    async def member(self, name: str, cursor: Cursor) -> Channel:
        stdin, to_stdin = self.pipe()
        from_stdout, stdout = self.pipe()
        self.ends += [to_stdin, stdin, stdout]
        with self.lock:
            self.members[name] = to_stdin
        passing = threading.Thread(target=self.pass_on, args=(name, from_stdout))
        passing.start()
        self.threads.append(passing)
        return StdioChannel(StdioSettings(user=name), cursor, stdin, stdout)

    def pipe(self) -> tuple[BinaryIO, BinaryIO]:
        read, write = os.pipe()
        return os.fdopen(read, "rb"), os.fdopen(write, "wb", buffering=0)

    def close(self) -> None:
        for end in self.ends:  # a thread that reads ends with its pipe
            end.close()
        for thread in self.threads:
            thread.join()

    def pass_on(self, name: str, lines: BinaryIO) -> None:
        with lines:
            for line in lines:
                said = {**json.loads(line), "direct": False, "bot": True}
                with self.lock:
                    others = [end for other, end in self.members.items() if other != name]
                for end in others:
                    end.write(json.dumps(said).encode() + b"\n")

    async def cut(self) -> None:
        """There are no connections."""


class TestStdio(ChannelContract):
    @pytest.fixture
    def service(self) -> Iterator[ChatService]:
        pipes = Pipes()
        yield pipes
        pipes.close()


@pytest.mark.slow  # starts processes
def test_a_script_talks_over_pipes_and_bad_lines_are_left_out() -> None:
    lines = [
        {"room": "team", "from": "bob", "text": "hello"},
        {"room": "team", "from": "bob", "id": "7"},
        {
            "room": "team",
            "from": "bob",
            "text": "a file",
            "files": [{"name": "a.txt", "content": base64.b64encode(b"abc").decode()}],
        },
    ]
    said = [json.dumps(line) for line in lines]
    said[1:1] = ["no JSON", '{"room": 1}', "", "[]"]
    done = subprocess.run(
        [sys.executable, "-c", ECHO],
        input="\n".join(said) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    heard = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["room"], each["from"], each["text"]) for each in heard] == [
        ("team", "echo", "HELLO"),
        ("team", "echo", ""),
        ("team", "echo", "A FILE"),
        ("team", "echo", ""),
    ]
    assert list(heard[1]) == ["room", "from", "text", "files", "id", "reply_to"]
    (file,) = heard[-1]["files"]
    assert (file["name"], base64.b64decode(file["content"])) == ("a.txt", b"cba")


def test_an_address_names_a_room() -> None:
    assert parse_chat_address("lite+stdio://team").room == "team"
    assert parse_chat_address("lite+stdio://team?user=desk").settings == StdioSettings(
        user="desk", rooms=("team",)
    )
