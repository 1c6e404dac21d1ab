"""The REST API and the gateway of Discord, as far as our channel and its tests need them."""

from __future__ import annotations

import json
import re
import time
from typing import Any
from urllib.parse import quote

from aiohttp import WSMsgType, web

from net.chat.web_service import WebService
from waiting import turns

GUILD, TEAM, MOST = 900, 901, 2000
EPOCH = 1420070400000


class DiscordService(WebService):
    """Bots, and one channel in which all of them are."""

    def __init__(self) -> None:
        super().__init__()
        self.gateway = f"ws://127.0.0.1:{self.port}/gateway"
        self.bots: dict[str, dict[str, Any]] = {}
        self.messages: list[dict[str, Any]] = []
        self.nonces: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.sockets: dict[web.WebSocketResponse, str] = {}
        self.limited = 0.0
        self.number = 0

    def bot(self, name: str) -> str:
        """Makes a bot and returns its token."""
        token = f"token-of-{name}"
        self.bots[token] = {**user(5000 + len(self.bots), name), "bot": True}
        return token

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/users/@me", self.me),
            web.get("/api/oauth2/applications/@me", self.application),
            web.get("/api/applications/@me", self.application),
            web.get("/api/channels/{id}", self.channel),
            web.get("/api/channels/{id}/messages", self.history),
            web.post("/api/channels/{id}/messages", self.post),
            web.get("/files/{name}", self.download),
            web.get("/gateway/", self.serve),
            web.get("/gateway", self.serve),
        ]

    async def say(self, author: dict[str, Any], text: str, **more: Any) -> dict[str, Any]:
        """Adds a message, of which everybody is told."""
        self.number += 1
        id = (int(time.time() * 1000) - EPOCH << 22) + self.number
        message = {
            "id": str(id),
            "channel_id": str(TEAM),
            "guild_id": str(GUILD),
            "author": author,
            "content": text,
            "timestamp": "2026-11-17T10:00:00.000000+00:00",
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [
                bot for bot in self.bots.values() if re.search(rf"<@!?{bot['id']}>", text)
            ],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "pinned": False,
            "type": 0,
            **more,
        }
        self.messages.append(message)
        await self.tell("MESSAGE_CREATE", message)
        return message

    async def tell(self, event: str, data: object) -> None:
        for socket in [*self.sockets]:
            await send(socket, op=0, t=event, s=self.number + 10, d=data)

    def known(self, request: web.Request) -> dict[str, Any]:
        token = request.headers.get("Authorization", "").removeprefix("Bot ")
        if token not in self.bots:
            raise web.HTTPUnauthorized(
                text='{"message": "401: Unauthorized", "code": 0}', content_type="application/json"
            )
        return self.bots[token]

    async def me(self, request: web.Request) -> web.Response:
        return answer(self.known(request))

    async def application(self, request: web.Request) -> web.Response:
        bot = self.known(request)
        more = {"description": "", "icon": None, "bot_public": True, "flags": 0, "team": None}
        return answer(
            {
                **{"id": bot["id"], "name": bot["username"], "verify_key": "k", "owner": bot},
                **more,
                "bot_require_code_grant": False,
            }
        )

    async def channel(self, request: web.Request) -> web.Response:
        self.known(request)
        if request.match_info["id"] != str(TEAM):
            return answer({"message": "Unknown Channel", "code": 10003}, 404)
        return answer(self.described())

    def described(self) -> dict[str, Any]:
        return {
            **{"id": str(TEAM), "type": 0, "guild_id": str(GUILD), "name": "team", "position": 0},
            "permission_overwrites": [],
            "last_message_id": self.messages[-1]["id"] if self.messages else None,
        }

    async def history(self, request: web.Request) -> web.Response:
        self.known(request)
        after, limit = int(request.query.get("after", 0)), int(request.query.get("limit", 50))
        room = request.match_info["id"]
        found = [
            each for each in self.messages if int(each["id"]) > after and each["channel_id"] == room
        ][:limit]
        return answer(found[::-1])

    async def post(self, request: web.Request) -> web.Response:
        bot = self.known(request)
        if request.match_info["id"] != str(TEAM):
            return answer({"message": "Unknown Channel", "code": 10003}, 404)
        if self.limited:
            pause, self.limited = self.limited, 0.0
            body = {"message": "You are being rate limited.", "retry_after": pause, "global": False}
            return answer(body, 429)
        attachments = []
        if request.content_type == "multipart/form-data":
            fields = await request.post()
            payload = json.loads(str(fields["payload_json"]))
            upload = fields["files[0]"]
            assert isinstance(upload, web.FileField)
            self.files[upload.filename] = upload.file.read()
            size, url = (
                len(self.files[upload.filename]),
                f"{self.url}/files/{quote(upload.filename)}",
            )
            attachments.append(
                {
                    **{"id": "1", "filename": upload.filename, "size": size, "url": url},
                    **{"proxy_url": url, "content_type": "application/octet-stream"},
                }
            )
        else:
            payload = await request.json()
        text, nonce = payload.get("content") or "", payload.get("nonce")
        if len(text.encode("utf-16-le")) > 2 * MOST:
            return answer({"message": "Must be 2000 or fewer in length.", "code": 50035}, 400)
        if nonce and nonce in self.nonces:
            return answer(self.nonces[nonce])
        more: dict[str, Any] = {"attachments": attachments}
        reference = payload.get("message_reference")
        if reference:
            replied = next(
                each for each in self.messages if each["id"] == str(reference["message_id"])
            )
            more |= {"message_reference": reference, "referenced_message": replied, "type": 19}
            more["mentions"] = [replied["author"]]
        message = await self.say(bot, text, **more)
        if nonce:
            self.nonces[nonce] = message
        return answer(message)

    async def download(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["name"]])

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await send(socket, op=10, d={"heartbeat_interval": 40_000})
        try:
            async for frame in socket:
                if frame.type is not WSMsgType.TEXT:
                    continue
                said = json.loads(frame.data)
                if said["op"] == 1:
                    await send(socket, op=11)
                elif said["op"] == 6:
                    await send(socket, op=9, d=False)  # no session outlives its connection
                elif said["op"] == 2:
                    token = said["d"]["token"]
                    if token not in self.bots:
                        await socket.close(code=4004)
                        break
                    await self.welcome(socket, token)
        finally:
            self.sockets.pop(socket, None)
        return socket

    async def welcome(self, socket: web.WebSocketResponse, token: str) -> None:
        bot = self.bots[token]
        ready = {
            **{"v": 10, "user": bot, "session_id": "s", "resume_gateway_url": self.gateway},
            **{"guilds": [], "application": {"id": bot["id"], "flags": 0}},
        }
        self.sockets[socket] = token
        await send(socket, op=0, t="READY", s=1, d=ready)

    async def cut(self) -> None:
        """Breaks the connections of the gateway."""
        for socket in [*self.sockets]:
            self.sockets.pop(socket)
            await socket.close(code=1001)
        await turns()


def user(id: int, name: str) -> dict[str, Any]:
    about = {"id": str(id), "username": name, "discriminator": "0", "avatar": None}
    return {**about, "global_name": name.title()}


def answer(body: object, status: int = 200) -> web.Response:
    # Its client takes only this very type for JSON, without a charset.
    headers = {"Content-Type": "application/json", "Via": "1.1 discord"}
    return web.Response(body=json.dumps(body).encode(), status=status, headers=headers)


async def send(socket: web.WebSocketResponse, **frame: object) -> None:
    if not socket.closed:
        await socket.send_str(json.dumps({"d": None, "s": None, "t": None, **frame}))
