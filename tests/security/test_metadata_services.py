"""Metadata services of clouds, which hand out the credentials of the machine."""

from __future__ import annotations

import pytest

from dragoman import connect
from dragoman.core.errors import BadParams, DragomanError
from dragoman.files.download import Downloader

SERVICES = [
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[fd00:42::42]",
    "[::ffff:169.254.169.254]",
    "[::ffff:100.100.100.200]",
]


@pytest.mark.parametrize("host", SERVICES)
async def test_metadata_services_are_closed_whatever_the_settings_say(host: str) -> None:
    files = Downloader(allow_private=True, max_size=1000, seconds=5, types=())
    with pytest.raises(BadParams, match="may not be called"):
        await anext(files.chunks(f"http://{host}/latest/meta-data/"))
    await files.close()
    with pytest.raises(DragomanError, match="may not be called"):
        async with connect(f"http://{host}/", allow_private=True) as agent:
            await agent.send("hello")
