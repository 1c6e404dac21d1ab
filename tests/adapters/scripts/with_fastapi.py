"""An agent inside a FastAPI application."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.testclient import TestClient

from dragoman import Agent, Turn
from dragoman.adapters.starlette import mount
from dragoman.app import create_app
from dragoman.settings import Server, Settings

EXAMPLES = os.environ["EXAMPLES"]
MEMORY = Settings(server=Server(store="memory:"))
SAID = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}


def desk() -> Agent:
    agent = Agent("Desk", description="Says it louder")

    @agent.skill("shout", description="Says it louder")
    async def shout(turn: Turn) -> str:
        return turn.text.upper()

    return agent


def client_of(app: FastAPI, host: str = "localhost") -> TestClient:
    return TestClient(app, base_url=f"http://{host}")


def spoken(client: TestClient, base: str, text: str = "hello") -> str:
    said = {"message": {**SAID["message"], "parts": [{"text": text}]}}
    answer = client.post(f"{base}/message:send", json=said, headers={"a2a-version": "1.0"})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["task"]["artifacts"][0]["parts"][0]["text"])


def test_a_mounted_agent_answers_beside_the_routes_of_the_application() -> None:
    app = FastAPI()

    @app.get("/orders")
    def orders() -> list[str]:
        return ["tea"]

    mount(app, "/desk", desk(), store="memory:")
    with client_of(app) as client:
        assert client.get("/orders").json() == ["tea"]
        assert spoken(client, "/desk") == "HELLO"
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": SAID}
        answer = client.post("/desk/", json=call, headers={"a2a-version": "1.0"}).json()
        assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        with client.stream("POST", "/desk/message:stream", json=SAID) as stream:
            assert "HELLO" in stream.read().decode()
        assert client.get("/openapi.json").json()["paths"].keys() == {"/orders"}


def test_several_agents_are_mounted_at_once() -> None:
    app = FastAPI()
    mount(app, "/team", {"one": desk(), "two": desk()}, store="memory:")
    with client_of(app) as client:
        assert spoken(client, "/team/agents/two") == "HELLO"
        assert len(client.get("/team/agents").json()["agents"]) == 2


def test_the_card_names_the_address_of_the_mount_point() -> None:
    app = FastAPI()
    mount(app, "/desk", desk(), store="memory:")
    with client_of(app) as client:
        card = client.get("/desk/.well-known/agent-card.json").json()
    urls = {each["protocolBinding"]: each["url"] for each in card["supportedInterfaces"]}
    assert urls == {"JSONRPC": "http://localhost/desk/", "HTTP+JSON": "http://localhost/desk"}


def test_the_card_names_the_public_address_behind_a_proxy() -> None:
    app = FastAPI()
    mount(app, "/desk", desk(), store="memory:", public_url="https://api.example.com")
    with client_of(app, "api.example.com") as client:
        card = client.get("/desk/.well-known/agent-card.json").json()
    urls = {each["url"] for each in card["supportedInterfaces"]}
    assert urls == {"https://api.example.com/desk/", "https://api.example.com/desk"}


def test_the_lifespan_of_the_application_runs_too_and_its_state_stays() -> None:
    told: list[str] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, str]]:
        told.append(f"start, agent ready: {served.ready}")
        yield {"db": "open"}
        told.append(f"stop, agent ready: {served.ready}")

    app = FastAPI(lifespan=lifespan)
    served = mount(app, "/desk", desk(), store="memory:")
    with client_of(app) as client:
        assert client.app_state == {"db": "open"}
        assert spoken(client, "/desk") == "HELLO"
    assert told == ["start, agent ready: True", "stop, agent ready: True"]
    assert not served.ready


def test_the_app_has_a_lifespan_of_its_own_for_those_who_mount_it_by_hand() -> None:
    served = create_app(desk(), MEMORY)
    app = FastAPI(lifespan=served.lifespan)
    app.mount("/desk", served)
    with client_of(app) as client:
        assert spoken(client, "/desk") == "HELLO"
    assert not served.ready


def test_an_app_that_nobody_started_says_so() -> None:
    app = FastAPI()
    app.mount("/desk", create_app(desk(), MEMORY))
    with client_of(app) as client:
        answer = client.post("/desk/message:send", json=SAID, headers={"a2a-version": "1.0"})
    assert answer.status_code == 503, answer.text
    assert "lifespan" in answer.text


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def test_the_logging_of_the_application_stays_as_it_is() -> None:
    root, kept = logging.getLogger(), Kept()
    before = root.handlers[:], root.level
    root.addHandler(kept)
    root.setLevel(logging.INFO)
    levels = {name: logging.getLogger(name).level for name in ("asyncio", "websockets", "mcp")}
    try:
        agent, app = desk(), FastAPI()

        @agent.skill("crash")
        async def crash(turn: Turn) -> str:
            raise ValueError("a bug")

        mount(app, "/desk", agent, store="memory:")
        assert root.handlers == [*before[0], kept]
        assert root.level == logging.INFO
        assert {name: logging.getLogger(name).level for name in levels} == levels
        message = {**SAID["message"], "metadata": {"skillId": "crash"}}
        with client_of(app) as client:
            client.post("/desk/message:send", json={"message": message})
        (record,) = (r for r in kept.records if r.levelno == logging.ERROR)
        assert record.name.startswith("dragoman"), record.name
        assert "ValueError" in record.getMessage() + str(record.exc_info)
        assert root.handlers == [*before[0], kept]
    finally:
        root.removeHandler(kept)
        root.setLevel(before[1])


def test_pages_of_allowed_origins_may_call_it_from_a_browser() -> None:
    app = FastAPI()
    page = "https://shop.example.com"
    mount(app, "/desk", desk(), store="memory:", cors={"origins": [page]})
    with client_of(app) as client:
        asked = {"origin": page, "access-control-request-method": "POST"}
        asked["access-control-request-headers"] = "a2a-version, content-type"
        allowed = client.options("/desk/message:send", headers=asked)
        assert allowed.status_code == 204
        assert allowed.headers["access-control-allow-origin"] == page
        assert "POST" in allowed.headers["access-control-allow-methods"]
        assert "a2a-version" in allowed.headers["access-control-allow-headers"]
        origin = {"origin": page, "a2a-version": "1.0"}
        answer = client.post("/desk/message:send", json=SAID, headers=origin)
        assert answer.status_code == 200, answer.text
        assert answer.headers["access-control-allow-origin"] == page
        assert answer.headers["vary"] == "Origin"
        foreign = {"origin": "https://evil.example", "a2a-version": "1.0"}
        answer = client.post("/desk/message:send", json=SAID, headers=foreign)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_the_cors_middleware_of_the_application_and_ours_get_on() -> None:
    app = FastAPI()
    page = "https://shop.example.com"
    app.add_middleware(CORSMiddleware, allow_origins=[page], allow_methods=["*"])
    mount(app, "/desk", desk(), store="memory:", cors={"origins": [page]})
    with client_of(app) as client:
        answer = client.post("/desk/message:send", json=SAID, headers={"origin": page})
        assert answer.status_code == 200, answer.text
        assert answer.headers.get_list("access-control-allow-origin") == [page]


def test_the_openapi_document_of_an_agent_describes_its_rest_binding() -> None:
    app = FastAPI()
    mount(app, "/desk", desk(), store="memory:")
    with client_of(app) as client:
        document = client.get("/desk/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert document["info"]["title"] == "Desk"
    assert document["servers"] == [{"url": "http://localhost/desk"}]
    assert {"/message:send", "/message:stream", "/tasks", "/tasks/{id}"} <= document["paths"].keys()


def test_the_example_of_the_guide() -> None:
    sys.path.insert(0, EXAMPLES)
    from fastapi_app import app

    with client_of(app) as client:
        assert client.get("/orders").json() == ["tea"]
        assert spoken(client, "/desk", "Kyoto") == "Three days in Kyoto"
