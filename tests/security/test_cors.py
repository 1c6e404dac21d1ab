"""`[cors]`: which pages of other origins may call us from a browser."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.app import create_app
from dragoman.core.errors import ConfigError
from dragoman.settings import Cors, Settings, load
from server.test_mounted import HEADERS, ask, said, settings
from server.two_agents import desk

PAGE = "https://shop.example.com"


def app_with(**cors: Any) -> Any:
    return create_app(desk("only"), msgspec.structs.replace(settings(), cors=Cors(**cors)))


def allowed(headers: dict[str, str]) -> str:
    return headers.get("access-control-allow-origin", "")


@pytest.mark.parametrize(
    ("origins", "origin", "status"),
    [
        ((), PAGE, 403),
        ((PAGE,), PAGE, 200),
        ((PAGE,), PAGE.upper().replace("HTTPS", "https"), 200),
        ((PAGE,), "https://evil.example", 403),
        ((PAGE,), "http://shop.example.com", 403),
        ((PAGE,), "https://shop.example.com.evil.example", 403),
        ((PAGE,), "null", 403),
        (("*",), "https://any.example", 200),
    ],
)
async def test_pages_of_listed_origins_may_post(
    origins: tuple[str, ...], origin: str, status: int
) -> None:
    app = app_with(origins=origins)
    async with app.lifespan():
        headers = {**HEADERS, "origin": origin}
        got, found, _ = await ask(app, "POST", "/message:send", said("hi"), headers)
    assert got == status
    assert allowed(found) == (origin if status == 200 else "")


async def test_a_preflight_tells_methods_and_headers_without_a_body() -> None:
    app = app_with(origins=(PAGE,), headers=("X-Shop",), credentials=True, max_age=60)
    headers = {"host": "desk.example", "origin": PAGE, "access-control-request-method": "POST"}
    status, found, body = await ask(app, "OPTIONS", "/", None, headers)
    assert (status, body) == (204, b"")
    assert allowed(found) == PAGE
    assert found["access-control-allow-credentials"] == "true"
    assert found["access-control-max-age"] == "60"
    assert "DELETE" in found["access-control-allow-methods"]
    assert {"a2a-version", "authorization", "x-shop"} <= {
        *found["access-control-allow-headers"].split(", ")
    }
    status, found, _ = await ask(app, "OPTIONS", "/", None, {**headers, "origin": "https://e.g"})
    assert allowed(found) == ""


async def test_a_cache_keeps_the_card_for_each_origin() -> None:
    app = app_with(origins=(PAGE,))
    headers = {"host": "desk.example", "origin": PAGE}
    _, found, _ = await ask(app, "GET", "/.well-known/agent-card.json", None, headers)
    assert found["vary"] == "A2A-Version, Origin"
    _, found, _ = await ask(app, "GET", "/.well-known/agent-card.json")
    assert found["vary"] == "A2A-Version"


def test_an_origin_is_a_scheme_and_a_host() -> None:
    assert load({"cors": {"origins": [PAGE]}}) == Settings(cors=Cors(origins=(PAGE,)))
    for wrong in ("shop.example.com", f"{PAGE}/path"):
        with pytest.raises(ConfigError, match="cors"):
            load({"cors": {"origins": [wrong]}})
