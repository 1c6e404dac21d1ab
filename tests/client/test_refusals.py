"""The words of an agent that refuses a call are part of our error; our credentials never are."""

from __future__ import annotations

import base64
import json

import pytest
from msgspec.structs import replace

from client.auth.http_server import LittleHttp, Request, Response, as_json
from client.our_server import QUICK
from dragoman import connect
from dragoman.core.errors import DragomanError, PeerRefused, Unauthenticated

TOKEN = "sk-live-0123456789"
LIMITS = replace(QUICK, retries=0, patience=0.0, attempts=1)
BINDINGS = {"a2a-1.0": "JSONRPC", "a2a-1.0-rest": "HTTP+JSON"}


def refusing(refusal: Response, binding: str) -> LittleHttp:
    """An agent of 1.0 that refuses every call so."""

    def respond(request: Request) -> Response:
        if request.method == "GET":
            interface = {"url": request.base, "protocolBinding": binding, "protocolVersion": "1.0"}
            return as_json(
                {
                    "name": "Stranger",
                    "description": "Refuses",
                    "version": "1",
                    "supportedInterfaces": [interface],
                    "capabilities": {"streaming": True},
                    "defaultInputModes": ["text/plain"],
                    "defaultOutputModes": ["text/plain"],
                    "skills": [],
                }
            )
        return refusal

    return LittleHttp(respond)


def text(status: int, body: str, kind: str = "text/plain") -> Response:
    return Response(status, body.encode(), {"content-type": kind})


PROBLEM = {"type": "about:blank", "title": "Not now", "detail": "The model is being changed"}
WRONG = {"detail": [{"loc": ["body", "message"], "msg": "field required", "type": "missing"}]}


@pytest.mark.parametrize("stream", [False, True], ids=["send", "stream"])
@pytest.mark.parametrize("dialect", BINDINGS)
@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (as_json(WRONG, 422), "body.message: field required"),
        (as_json({"detail": "No agent of this name"}, 400), "No agent of this name"),
        (as_json(PROBLEM, 409), "Not now: The model is being changed"),
        (as_json({"error": "quota_exceeded"}, 402), "quota_exceeded"),
        (as_json({"error": {"message": "No such deployment"}}, 418), "No such deployment"),
        (as_json({"why": ["a", "b"]}, 400), '{"why":["a","b"]}'),
        (text(403, "Your plan has no agents"), "Your plan has no agents"),
        (text(500, "boom\x1b[2J\r\nat line 3"), "boom [2J at line 3"),
        (
            text(502, "<html><head><title>502 Bad\nGateway</title></head><body>x", "text/html"),
            "502 Bad Gateway",
        ),
    ],
)
async def test_the_words_of_a_refusal_are_part_of_the_error(
    refusal: Response, words: str, dialect: str, stream: bool
) -> None:
    async with refusing(refusal, BINDINGS[dialect]) as server:
        address = server.url
        async with connect(address, dialect=dialect, limits=LIMITS) as agent:
            with pytest.raises(DragomanError) as caught:
                await (agent.stream("hi").result() if stream else agent.send("hi"))
    assert words in caught.value.message
    assert str(caught.value) == caught.value.message
    assert caught.value.message.count(words) == 1


async def test_a_long_explanation_is_cut() -> None:
    async with refusing(text(400, "word " * 100_000), "JSONRPC") as server:
        address = server.url
        async with connect(address, limits=LIMITS) as agent:
            with pytest.raises(PeerRefused) as caught:
                await agent.send("hi")
    assert 200 < len(caught.value.message) < 800


async def test_a_card_that_is_refused_says_why() -> None:
    async with LittleHttp(lambda request: text(451, "Not in your country")) as server:
        with pytest.raises(DragomanError, match="Not in your country"):
            async with connect(server.url, limits=LIMITS):
                pass


BASIC = "Basic " + base64.b64encode(b"ada:opensesame").decode()


@pytest.mark.parametrize("stream", [False, True], ids=["send", "stream"])
@pytest.mark.parametrize(
    ("auth", "secret"),
    [(TOKEN, TOKEN), ({"x-api-key": TOKEN}, TOKEN), ({"authorization": BASIC}, "opensesame")],
    ids=["bearer", "key", "basic"],
)
@pytest.mark.parametrize("status", [200, 400, 401, 500])
async def test_our_credentials_are_removed_from_errors(
    auth: str | dict[str, str], secret: str, status: int, stream: bool
) -> None:
    """Also if the error is well-formed, and has them in its data."""
    told = {"code": -32603, "message": f"{secret} is not known", "data": {"given": [secret]}}
    said = {"jsonrpc": "2.0", "id": 1, "error": told}

    def respond(request: Request) -> Response:
        if request.method == "GET":
            return agent_card(request)
        said["id"] = json.loads(request.body)["id"]
        return as_json(said, status, **{"www-authenticate": f'Bearer error="{secret}"'})

    agent_card = refusing(Response(), "JSONRPC").answer
    async with LittleHttp(respond) as server:
        address = server.url
        async with connect(address, auth=auth, limits=LIMITS) as agent:
            with pytest.raises(DragomanError) as caught:
                await (agent.stream("hi").result() if stream else agent.send("hi"))
    error = caught.value
    shown = repr((error.message, str(error), error.args, dict(error.public), error.data))
    assert secret not in shown
    assert "is not known" in error.message


async def test_a_card_does_not_show_our_credentials() -> None:
    def respond(request: Request) -> Response:
        given = request.headers.get("authorization", "")
        return text(401 if not given else 400, f"You sent {given}")

    async with LittleHttp(respond) as server:
        with pytest.raises(DragomanError) as caught:
            async with connect(server.url, auth=TOKEN, limits=LIMITS):
                pass
    assert not isinstance(caught.value, Unauthenticated)
    assert "You sent" in caught.value.message
    assert TOKEN not in caught.value.message
