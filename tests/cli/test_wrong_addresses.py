"""Wrong addresses, closed ports, web pages, TLS where there is none: a line says what to do."""

from __future__ import annotations

import io
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dragoman.cli import main
from security.certs import Authority

CLOSE = b"connection: close\r\n\r\n"
PAGE = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n" + CLOSE + b"<html>"
BAD = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n" + CLOSE
MOVED = b"HTTP/1.1 301 X\r\nlocation: https://a.example/\r\ncontent-length: 0\r\n" + CLOSE
COMMANDS = ("send", "chat", "card", "doctor", "tasks list")


@contextmanager
def listening(answer: bytes, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A port where every connection is answered with these bytes, whatever it says."""

    def serve(one: socket.socket) -> None:
        try:
            if tls is not None:
                one = tls.wrap_socket(one, server_side=True)
            one.settimeout(30)
            one.recv(65536)
            one.sendall(answer)
            one.shutdown(socket.SHUT_WR)
            while one.recv(65536):  # what is closed unread would reset the answer
                pass
        except OSError:
            pass
        finally:
            one.close()

    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    one, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(one,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]


Said = Callable[..., tuple[int, str]]


@pytest.fixture
def said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Said:
    """Runs a command to its end: the exit code, and all that was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run(command: str, url: str, *more: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hi\n")))
        words = ("hi",) if command == "send" else ()
        with pytest.raises(SystemExit) as ended:  # anything else would be a traceback
            main([*command.split(), url, *words, *more])
        printed = "".join(capsys.readouterr())
        assert "Traceback" not in printed
        assert "_ssl.c" not in printed
        return int(ended.value.code or 0), printed

    return run


each_command = pytest.mark.parametrize("command", COMMANDS)


@each_command
def test_a_closed_port(command: str, said: Said) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    code, printed = said(command, f"http://127.0.0.1:{port}")
    assert code == 3
    assert "nobody listens there" in printed
    assert "is the address right?" in printed


@each_command
def test_a_web_page(command: str, said: Said) -> None:
    with listening(PAGE) as port:
        code, printed = said(command, f"http://127.0.0.1:{port}")
    assert code == 3
    assert "a web page" in printed


@each_command
@pytest.mark.parametrize("answer", [BAD, b"SSH-2.0-x\r\n"], ids=["http", "ssh"])
def test_tls_to_a_server_without(command: str, answer: bytes, said: Said) -> None:
    with listening(answer) as port:
        code, printed = said(command, f"https://127.0.0.1:{port}")
    assert code == 3
    assert "does not speak TLS as we do" in printed
    assert f"http://127.0.0.1:{port}" in printed


@pytest.mark.slow  # each command tries again for two seconds
@each_command
def test_plain_http_to_a_server_with_tls(command: str, said: Said) -> None:
    with listening(b"") as port:
        code, printed = said(command, f"http://127.0.0.1:{port}")
    assert code == 3
    assert "https://" in printed


@each_command
def test_a_certificate_that_nobody_vouches_for(command: str, said: Said, tmp_path: Path) -> None:
    cert, key = Authority(tmp_path).issue("agent")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    with listening(PAGE, tls) as port:
        code, printed = said(command, f"https://127.0.0.1:{port}")
    assert code == 3
    assert "certificate that cannot be verified" in printed
    assert "--ca" in printed


@each_command
def test_an_address_that_moved(command: str, said: Said) -> None:
    with listening(MOVED) as port:
        code, printed = said(command, f"http://127.0.0.1:{port}")
    assert code in (1, 3)
    assert "https://a.example/" in printed


@each_command
@pytest.mark.parametrize(
    "address",
    ["", "http://", "http://[::1", "http://127.0.0.1:99999", "ftp://x", "http://256.1.1.1"],
)
def test_what_is_no_address(command: str, address: str, said: Said) -> None:
    code, printed = said(command, address)
    assert code == 2
    assert printed.startswith("dragoman: This is no address of an agent")


@each_command
def test_a_password_in_an_address_is_not_repeated(command: str, said: Said) -> None:
    code, printed = said(command, "http://ann:s3cret@127.0.0.1:1")
    assert code == 2
    assert "user name or password" in printed
    assert "s3cret" not in printed


def test_the_doctor_gives_up_on_a_server_that_says_nothing(said: Said) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        code, printed = said("doctor", url, "--timeout", "1", "--verbose")
    assert code == 3
    assert "no answer within 1 s" in printed
    assert " 1 requests" in printed  # the checks that need the card do not wait once more
