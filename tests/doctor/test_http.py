"""The doctor's HTTP client: connections that a server closes instead of answering."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from dragoman.doctor.guard import Guard
from dragoman.doctor.http import NoAnswer, RawHttp

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@contextmanager
def answering(*answers: int) -> Iterator[tuple[RawHttp, str, list[int]]]:
    """A server whose connections answer so many requests each, and close at the next one: a client,
    the address, and how many requests came on each connection."""
    came: list[int] = []

    def serve() -> None:
        for many in answers:
            connection, _ = listener.accept()
            came.append(0)
            with connection:
                while connection.recv(65536):
                    came[-1] += 1
                    if came[-1] > many:
                        break
                    connection.sendall(ANSWER)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(60)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client = RawHttp(Guard(url, allow_private=False), timeout=60.0)
        serving = pool.submit(serve)
        try:
            yield client, url, came
        finally:
            client.close()
            serving.result()


def test_a_kept_connection_that_the_server_closes_is_replaced_by_a_fresh_one() -> None:
    with answering(2, 1) as (client, url, came):
        for _ in range(3):
            assert client.ask("GET", url).status == 200
        assert came == [3, 1]
        assert client.requests == 3


def test_a_fresh_connection_without_an_answer_is_no_answer() -> None:
    with answering(1, 0) as (client, url, came):
        assert client.ask("GET", url).status == 200
        with pytest.raises(NoAnswer, match="closed the connection without an answer"):
            client.ask("GET", url)
        assert came == [2, 1]
