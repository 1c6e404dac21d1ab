"""`GET /openapi.json`: the REST binding of an agent, as tools for OpenAPI read it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from dragoman import Agent, Turn
from dragoman.app import create_app
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.dialects.a2a.routes import REST_1_0
from server.test_mounted import HEADERS, TWO, ask, said, settings
from server.two_agents import desk


async def document_of(app: Any, path: str = "/openapi.json") -> dict[str, Any]:
    status, headers, body = await ask(app, "GET", path)
    assert (status, headers["content-type"]) == (200, "application/json")
    found: dict[str, Any] = json.loads(body)
    return found


async def test_what_the_server_answers_fits_the_schemas() -> None:
    app = create_app(desk("only"), settings())
    document = await document_of(app)
    assert document["openapi"] == "3.1.0"
    schemas = document["components"]["schemas"]

    def check(value: object, path: str, method: str) -> None:
        operation = document["paths"][path][method]
        content = operation["responses"]["200"]["content"]
        ((_, media),) = content.items()
        schema = {**media["schema"], "components": {"schemas": strict(schemas)}}
        jsonschema_rs.validate(schema, value)

    async with app.lifespan():
        _, _, body = await ask(app, "POST", "/message:send", said("hi"))
        check(json.loads(body), "/message:send", "post")
        task = json.loads(body)["task"]["id"]
        _, _, body = await ask(app, "GET", f"/tasks/{task}")
        check(json.loads(body), "/tasks/{id}", "get")
        _, _, body = await ask(app, "GET", "/tasks?pageSize=1")
        check(json.loads(body), "/tasks", "get")
        _, _, body = await ask(app, "POST", "/message:stream", said("hi"))
        for line in body.decode().splitlines():
            if line.startswith("data: "):
                check(json.loads(line[6:]), "/message:stream", "post")
        asked = document["paths"]["/message:send"]["post"]["requestBody"]["content"]
        schema = {**asked["application/json"]["schema"], "components": {"schemas": strict(schemas)}}
        jsonschema_rs.validate(schema, said("hi"))
        with pytest.raises(jsonschema_rs.ValidationError):
            jsonschema_rs.validate(schema, {"message": "hi"})


def strict(schemas: dict[str, Any]) -> dict[str, Any]:
    """Members that no schema names are wrong."""
    return {name: {**schema, "additionalProperties": False} for name, schema in schemas.items()}


async def test_it_has_every_path_of_the_binding_and_ids_of_their_own() -> None:
    document = await document_of(create_app(desk("only"), settings()))
    known = {(route.path, route.verb.lower()) for route in REST_1_0.routes}
    operations = {
        (path, method): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert operations.keys() == known
    ids = [operation["operationId"] for operation in operations.values()]
    assert len({*ids}) == len(ids)
    text = json.dumps(document)
    for name in {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in document["components"]["schemas"]


async def test_it_names_skills_addresses_and_authentication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("T_KEY", "sesame-sesame-sesame")
    agent = Agent(
        "Desk",
        description="Plans trips",
        auth={"key": Tokens(callers={"ann": Known(secret=Secret(env="T_KEY"))})},
    )

    @agent.skill("plan", description="Plans a trip")
    async def plan(turn: Turn) -> str:
        return turn.text

    document = await document_of(create_app(agent, settings(public_url="https://desk.example/x")))
    assert document["servers"] == [{"url": "https://desk.example/x"}]
    assert "`plan`: Plans a trip" in document["info"]["description"]
    assert document["components"]["securitySchemes"]["key"]["type"] == "http"
    assert document["security"] == [{"key": []}]


async def test_each_of_several_agents_has_one() -> None:
    document = await document_of(create_app(TWO, settings()), "/agents/beta/openapi.json")
    assert document["servers"] == [{"url": "http://desk.example/agents/beta"}]


async def test_there_is_none_without_the_binding() -> None:
    app = create_app(desk("only"), settings(interfaces=("JSONRPC",)))
    assert (await ask(app, "GET", "/openapi.json", None, HEADERS))[0] == 404
