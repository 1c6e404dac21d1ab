"""A Bot API server as Telegram's, as far as our channel and its tests need it."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from aiohttp import web

from net.chat.web_service import WebService

TEAM = -1001
MOST = 4096


class BotApi(WebService):
    """Bots, one group in which all of them are, and private chats."""

    def __init__(self) -> None:
        super().__init__()
        self.bots: dict[str, dict[str, Any]] = {}
        self.updates: dict[str, list[dict[str, Any]]] = {}
        self.messages: dict[int, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.news = asyncio.Event()
        self.numbers = 100
        self.retry_after = 0
        """The pause that the next message is answered with."""
        self.refused: list[float] = []
        self.migrated = 0

    def bot(self, name: str) -> str:
        """Makes a bot and returns its token."""
        id = 5000 + len(self.bots)
        token = f"{id}:{name}-token-of-the-tests"
        user = {"id": id, "is_bot": True, "first_name": name.title(), "username": f"{name}_bot"}
        self.bots[token], self.updates[token] = user, []
        return token

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/bot{token}/{method}", self.call),
            web.get("/file/bot{token}/{path}", self.download),
        ]

    def say(self, sender: dict[str, Any], text: str = "", **more: Any) -> dict[str, Any]:
        """Adds a message, of which all bots but its sender are told."""
        self.numbers += 1
        message = {
            "message_id": self.numbers,
            "date": int(time.time()),
            "chat": {"id": TEAM, "type": "supergroup", "title": "Team"},
            "from": sender,
            **({"text": text} if text else {}),
            **more,
        }
        self.messages[self.numbers] = message
        self.tell(sender, {"message": message})
        return message

    def tell(self, sender: dict[str, Any], update: dict[str, Any]) -> None:
        self.numbers += 1
        for token, bot in self.bots.items():
            if bot["id"] != sender["id"]:
                self.updates[token].append({"update_id": self.numbers, **update})
        self.news.set()
        self.news = asyncio.Event()

    async def call(self, request: web.Request) -> web.Response:
        token, method = request.match_info["token"], request.match_info["method"]
        bot = self.bots.get(token)
        if bot is None:
            return fault(401, "Unauthorized")
        fields = dict(await request.post())
        match method:
            case "getMe":
                return answer(bot)
            case "getChat" if fields["chat_id"] in (str(TEAM), "@team"):
                chat = {"id": TEAM, "type": "supergroup", "title": "Team"}
                more = {"accent_color_id": 0, "max_reaction_count": 1}
                return answer({**chat, **more, "accepted_gift_types": GIFTS})
            case "getUpdates":
                return answer(await self.poll(token, fields))
            case "getFile" if fields["file_id"] in self.files:
                id = fields["file_id"]
                return answer({"file_id": id, "file_unique_id": id, "file_path": id})
            case "sendMessage" | "sendDocument":
                return self.send(bot, fields)
        return fault(400, "Bad Request: chat not found")

    def send(self, bot: dict[str, Any], fields: dict[str, Any]) -> web.Response:
        if self.retry_after:
            pause, self.retry_after = self.retry_after, 0
            self.refused.append(time.monotonic())
            return fault(429, "Too Many Requests", parameters={"retry_after": pause})
        if self.migrated and fields["chat_id"] == str(TEAM):
            moved = {"migrate_to_chat_id": self.migrated}
            return fault(400, "Bad Request: group chat was upgraded", parameters=moved)
        if fields["chat_id"] not in (str(TEAM), str(self.migrated)):
            return fault(400, "Bad Request: chat not found")
        more: dict[str, Any] = {}
        if self.migrated:
            more["chat"] = {"id": self.migrated, "type": "supergroup", "title": "Team"}
        reply = json.loads(str(fields.get("reply_parameters") or "{}")).get("message_id")
        if reply:
            more["reply_to_message"] = {**self.messages[reply], "reply_to_message": None}
        text = str(fields.get("text", ""))
        if len(text.encode("utf-16-le")) > 2 * MOST:
            return fault(400, "Bad Request: message is too long")
        if "document" in fields:
            upload = next(each for each in fields.values() if isinstance(each, web.FileField))
            id = f"file-{len(self.files)}"
            self.files[id] = upload.file.read()
            more["document"] = {
                "file_id": id,
                "file_unique_id": id,
                "file_name": upload.filename,
                "mime_type": "application/octet-stream",
                "file_size": len(self.files[id]),
            }
        return answer(self.say(bot, text, **more))

    async def poll(self, token: str, fields: dict[str, Any]) -> list[dict[str, Any]]:
        offset, seconds = int(fields.get("offset") or 0), float(fields.get("timeout") or 0)
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            news, waiting = self.news, self.updates[token]
            if offset < 0:
                waiting[:] = waiting[offset:]
            else:
                waiting[:] = [each for each in waiting if each["update_id"] >= offset]
            if waiting or asyncio.get_running_loop().time() >= deadline:
                return waiting[:100]
            try:
                async with asyncio.timeout_at(deadline):
                    await news.wait()
            except TimeoutError:
                continue

    async def download(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["path"]])


GIFTS = dict.fromkeys(
    (
        *("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription"),
        "gifts_from_channels",
    ),
    False,
)


def answer(result: object) -> web.Response:
    return web.json_response({"ok": True, "result": result})


def fault(code: int, words: str, **more: object) -> web.Response:
    body = {"ok": False, "error_code": code, "description": words, **more}
    return web.json_response(body, status=code)
