"""A dead address is one short error, without the errors of sockets and pools behind it."""

from __future__ import annotations

import traceback

import pytest
from msgspec.structs import replace

from client.our_server import QUICK, make_agent
from dragoman import connect
from dragoman.core.errors import PeerUnreachable
from dragoman.testing import served
from ports import own_port

LIMITS = replace(QUICK, retries=0, patience=0.0, attempts=1)


def shown(error: BaseException) -> str:
    """What Python prints about it."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("scheme", ["http", "https", "a2a+grpc", "iat+http", "iat+ws"])
async def test_connecting_to_a_dead_address_is_one_error(scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:{own_port()}"
    with pytest.raises(PeerUnreachable) as caught:
        async with connect(url, limits=LIMITS) as agent:
            await agent.send("hi")
    assert shown(caught.value).count("Traceback") == 1
    assert "127.0.0.1" in caught.value.message
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("dialect", ["a2a-1.0", "a2a-1.0-rest", "a2a-1.0-grpc"])
@pytest.mark.parametrize("stream", [False, True], ids=["send", "stream"])
async def test_calling_an_agent_that_is_gone_is_one_error(dialect: str, stream: bool) -> None:
    async with served(make_agent(), grpc=True) as url, connect(url, dialect=dialect) as agent:
        card = agent.card
    async with connect(url, dialect=dialect, card=card, limits=LIMITS) as agent:
        with pytest.raises(PeerUnreachable) as caught:
            await (agent.stream("hi").result() if stream else agent.send("hi"))
    assert shown(caught.value).count("Traceback") == 1
