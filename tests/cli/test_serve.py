"""`dragoman serve`: start, stop and every mistake a user can make with it."""

from __future__ import annotations

import re
import signal
import socket
import sqlite3
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import httpx2
import pytest

from cli.run import AGENT, dragoman, serving
from waiting import wait_until

pytestmark = pytest.mark.slow  # starts processes

TWICE = """

@agent.skill("echo")
async def again(turn: Turn) -> str:
    return ""
"""
STARS = """

@agent.skill("stars")
async def stars(turn: Turn, *args: str) -> str:
    return ""
"""
HEADERS = {"A2A-Version": "1.0", "Content-Type": "application/json"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


def message(text: str, skill: str = "") -> dict[str, object]:
    said = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": said | ({"metadata": {"skillId": skill}} if skill else {})}


def send(url: str, method: str, params: object) -> dict[str, object]:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer: dict[str, object] = httpx2.post(url, json=call, headers=HEADERS, timeout=60).json()
    return answer


@pytest.mark.slow
def test_it_serves_and_stops_cleanly_with_streams_open(home: Path) -> None:
    with serving("agent.py", cwd=home) as server:
        answer = send(server.url, "SendMessage", message("hi"))
        assert '"HI"' in str(answer).replace("'", '"')
        assert (home / "dragoman.db").exists()
        assert (home / "dragoman.key").stat().st_mode & 0o777 == 0o600
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage"}
        call["params"] = message("go", "long")
        with (
            httpx2.stream("POST", server.url, json=call, headers=HEADERS) as stream,
            socket.create_connection(("127.0.0.1", server.port)) as half,
        ):
            half.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\n")  # never sends the rest
            lines = stream.iter_lines()
            next(lines)
            code, seconds, logged = server.end(signal.SIGTERM)
            assert any("data:" in line for line in lines)  # and it ends without an error
        assert code == 0
        assert seconds < 30  # the stream had a minute to go
        assert "Traceback" not in logged
        assert "info started" in logged
        assert "info stopped" in logged


def test_a_second_ctrl_c_ends_at_once(home: Path) -> None:
    with serving("agent.py", "--store", "memory:", cwd=home) as server:
        params = message("go", "long") | {"configuration": {"returnImmediately": True}}
        send(server.url, "SendMessage", params)
        code, seconds, _ = server.end(signal.SIGINT, signal.SIGINT)
        assert code == 130
        assert seconds < 30  # the task had a minute to go


def test_a_task_outlives_its_process(home: Path) -> None:
    with serving("agent.py", cwd=home) as server:
        params = message("go") | {"configuration": {"returnImmediately": True}}
        answer = send(server.url, "SendMessage", params)
        server.process.kill()
    task = answer["result"]["task"]["id"]  # type: ignore[index]
    with serving("agent.py", cwd=home) as server:
        wait_until(lambda: "COMPLETED" in str(send(server.url, "GetTask", {"id": task})))


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("none.py", None, "There is no file none.py"),
        ("agent", None, "Did you mean agent.py?"),
        ("bad.py", "x = (\n", "bad.py:1: "),
        ("boom.py", "\nraise ValueError('no')\n", "boom.py:2: ValueError: no"),
        ("empty.py", "x = 1\n", "has no Agent"),
        ("idle.py", "from dragoman import Agent\na = Agent('x')\n", "has no skills"),
        ("two.py", AGENT + "\nother = Agent('y')\n", "several agents (agent, other)"),
        ("two.py:third", AGENT, "no agent called 'third' (agents in it: agent)"),
        ("json.py", "x = 1\n", "has no Agent"),
        ("twice.py", AGENT + TWICE, "twice.py:18: There are two skills `echo`"),
        ("stars.py", AGENT + STARS, "stars.py:18: Skill `stars`: *args"),
        ("uses.py", "import own_module\n", "own_module.py:2: ZeroDivisionError"),
        ("lacks.py", "import lacking\n", "lacking.py:1: ModuleNotFoundError"),
        ("calls.py", "import json\njson.loads('{')\n", "calls.py:2: JSONDecodeError"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_wrong_file_is_explained(home: Path, file: str, text: str | None, says: str) -> None:
    if text is not None:
        (home / file.partition(":")[0]).write_text(text)
    (home / "own_module.py").write_text("x = 1\ny = x / 0\n")
    (home / "lacking.py").write_text("import no_such_module\n")
    ended = dragoman("serve", file, "--port", "0", cwd=home)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("\n") <= 2


@pytest.mark.parametrize(
    "given", ["desk.travel:agent", "desk.travel", "desk.travel:make", "made.py:make"]
)
def test_a_module_or_a_function_that_makes_the_agent_is_served(home: Path, given: str) -> None:
    (home / "desk").mkdir()
    (home / "desk" / "__init__.py").write_text("")
    (home / "desk" / "travel.py").write_text(AGENT + "\ndef make() -> Agent:\n    return agent\n")
    (home / "made.py").write_text("from desk.travel import make\n")
    with serving(given, "--store", "memory:", cwd=home) as server:
        assert "HI" in str(send(server.url, "SendMessage", message("hi")))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("desk.nowhere:agent", "No module named 'desk.nowhere'"),
        ("desk:nobody", "desk has no agent called 'nobody'"),
        ("desk:number", "number() in desk gave a int, not an Agent"),
        ("desk:fails", "__init__.py:5: ValueError: no"),
    ],
)
def test_a_wrong_module_is_explained(home: Path, given: str, says: str) -> None:
    (home / "desk").mkdir()
    (home / "desk" / "__init__.py").write_text(
        "def number():\n    return 3\n\ndef fails():\n    raise ValueError('no')\n"
    )
    ended = dragoman("serve", given, "--port", "0", cwd=home)
    assert ended.returncode == 2, ended.stderr
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--host", "0.0.0.0"], "--insecure"),
        (["--host", "nowhere.invalid", "--insecure"], "not a known address"),
        (["--port", "99999"], "between 0 and 65535"),
        (["--port", "soon"], "--port"),
        (["--store", "nosuch://x"], "There is no store for 'nosuch:'"),
        (["--public-url", "example.com"], "public-url must start with http"),
        (["--config", "none.toml"], "There is no file none.toml"),
        (["--colour"], "--colour"),
        (["--reload", "--config", "none.toml"], "There is no file none.toml"),
        (["--log-level", "loud"], "loud"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_flag_is_explained(home: Path, args: list[str], says: str) -> None:
    ended = dragoman("serve", "agent.py", *args, cwd=home)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("\n") <= 2


def test_a_port_in_use_is_explained(home: Path) -> None:
    with serving("agent.py", "--store", "memory:", cwd=home) as server:
        ended = dragoman("serve", "agent.py", "--port", str(server.port), cwd=home)
        assert ended.returncode == 2
        assert f"Port {server.port} is in use" in ended.stderr
        assert re.search(r"--port \d+$", ended.stderr.strip())


def test_the_port_that_is_suggested_is_free_and_not_the_one_of_grpc(home: Path) -> None:
    """Both would be taken as soon as the suggestion is followed."""
    with ExitStack() as sockets:
        port = _port_whose_next_but_one_is_in_use(sockets)
        options = ("--port", str(port), "--grpc-port", str(port + 1))
        ended = dragoman("serve", "agent.py", *options, cwd=home)
    suggested = re.search(r"--port (\d+)$", ended.stderr.strip())
    assert suggested, ended.stderr
    assert int(suggested[1]) not in (port, port + 1, port + 2)


def _port_whose_next_but_one_is_in_use(sockets: ExitStack) -> int:
    """Listens on both ports, and returns the first. Another program may have the second one for a
    moment and release it during the test, so then it is another pair."""
    while True:
        listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = int(listener.getsockname()[1])
        with suppress(OSError, OverflowError):
            sockets.enter_context(socket.create_server(("127.0.0.1", port + 2)))
            return port


def test_settings_come_from_flags_variables_and_the_file(home: Path) -> None:
    (home / "dragoman.toml").write_text(
        '[server]\nstore = "sqlite:///file.db"\nlog_level = "warning"\n[limits]\nbody_size = 900\n'
    )
    with serving("agent.py", cwd=home, DRAGOMAN_SERVER_STORE="sqlite:///variable.db") as server:
        assert "413" in str(httpx2.post(server.url, content=b"x" * 1000, headers=HEADERS))
        assert (home / "variable.db").exists()
        assert not (home / "file.db").exists()
        _, _, logged = server.end()
        assert logged == ""


BLOCKING = """
import time
from dragoman import Agent, Turn

agent = Agent("Blocker", description="For tests.")

@agent.skill("block")
async def block(turn: Turn) -> str:
    time.sleep(float(turn.text))  # blocks the loop
    return "done"
"""


@pytest.mark.slow
def test_code_that_blocks_the_loop_is_named(home: Path) -> None:
    (home / "blocker.py").write_text(BLOCKING)
    with serving("blocker.py", "--store", "memory:", cwd=home) as server:
        assert "done" in str(send(server.url, "SendMessage", message("3.2")))
        assert "dragoman_loop_blocked_total 1" in httpx2.get(f"{server.url}/metrics").text
        code, _, logged = server.end()
        assert code == 0
        (line,) = [each for each in logged.splitlines() if "event loop is blocked" in each]
        assert line.endswith(' at="blocker.py:9 block"')


@pytest.mark.slow
def test_the_watchdog_ends_a_process_that_hangs(home: Path) -> None:
    (home / "blocker.py").write_text(BLOCKING)
    with serving("blocker.py", "--watchdog", "2", "--store", "memory:", cwd=home) as server:
        with pytest.raises(httpx2.HTTPError):
            send(server.url, "SendMessage", message("30"))
        assert server.process.wait(60) == 70


@pytest.mark.slow
def test_reload_starts_again_when_the_file_changes(home: Path) -> None:
    with serving("agent.py", "--reload", "--store", "memory:", cwd=home) as server:
        (home / "agent.py").write_text(AGENT.replace(".upper()", ".lower()"))
        assert server.process.stdout is not None
        for line in server.process.stdout:
            if "listens at" in line:
                break
        url = line.split("listens at ")[1].split()[0]
        assert "hi" in str(send(url, "SendMessage", message("HI")))
        code, seconds, _ = server.end(signal.SIGINT)
        assert (code, seconds < 30) == (0, True)


def test_a_store_that_cannot_be_opened_is_explained(home: Path) -> None:
    (home / "taken").write_text("a file, not a folder")
    ended = dragoman(
        "serve", "agent.py", "--port", "0", "--store", "sqlite:///taken/x.db", cwd=home
    )
    assert ended.returncode == 2
    assert "taken" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_refused_start_leaves_nothing_beside_a_copied_store(home: Path) -> None:
    copied = home / "copied"
    copied.mkdir()
    with closing(sqlite3.connect(copied / "tasks.db")) as db:
        db.execute("PRAGMA user_version = 9999")
    for store in ("sqlite:///copied/tasks.db", "file:copied/folder"):
        if store.startswith("file"):
            (copied / "folder").mkdir()
            (copied / "folder" / "layout").write_text("9999")
        before = sorted(copied.rglob("*"))
        ended = dragoman("serve", "agent.py", "--port", "0", "--store", store, cwd=home)
        assert ended.returncode == 2
        assert "9999" in ended.stderr
        assert sorted(copied.rglob("*")) == before


# Several agents

OFFICE = (
    AGENT.replace('"Tester"', '"Travel Desk"')
    + """

billing = Agent("Billing")

@billing.skill("bill", default=True)
async def bill(turn: Turn) -> str:
    return f"billed {turn.text}"
"""
)


def test_several_files_are_served_side_by_side(home: Path) -> None:
    (home / "office.py").write_text(OFFICE)
    files = ("agent.py", "office.py:agent", "bills=office.py:billing")
    with serving(*files, "--store", "memory:", cwd=home) as server:
        assert server.process.stdout is not None
        told = [server.process.stdout.readline() for _ in range(6)]
        assert f"Travel Desk listens at {server.url}/agents/travel-desk/" in told[1]
        assert f"Billing listens at {server.url}/agents/bills/" in told[3]
        assert f"{server.url}/agents/bills/.well-known/agent-card.json" in told[4]
        assert told[5].split() == ["list", f"{server.url}/agents"]
        for name, answer in (("tester", "HI"), ("travel-desk", "HI"), ("bills", "billed hi")):
            said = send(f"{server.url}/agents/{name}", "SendMessage", message("hi"))
            assert answer in str(said)
        code, _, logged = server.end()
        assert code == 0
        assert "info started agents=tester,travel-desk,bills" in logged


def test_tasks_of_several_agents_outlive_their_process(home: Path) -> None:
    (home / "office.py").write_text(OFFICE)
    files = ("alpha=agent.py", "beta=office.py:billing")
    tasks: dict[str, str] = {}
    with serving(*files, cwd=home) as server:
        for name in ("alpha", "beta"):
            params = message("go") | {"configuration": {"returnImmediately": True}}
            answer = send(f"{server.url}/agents/{name}", "SendMessage", params)
            tasks[name] = answer["result"]["task"]["id"]  # type: ignore[index]
        server.process.kill()
    with serving(*files, cwd=home) as server:
        for name, answer in (("alpha", "GO"), ("beta", "billed go")):
            url, other = (
                f"{server.url}/agents/{name}",
                tasks["beta" if name == "alpha" else "alpha"],
            )

            def found(url: str = url, task: str = tasks[name]) -> str:
                return str(send(url, "GetTask", {"id": task}))

            wait_until(lambda found=found: "COMPLETED" in found())
            assert answer in found()
            assert "TASK_NOT_FOUND" in str(send(url, "GetTask", {"id": other}))


def test_the_settings_may_name_the_agents(home: Path) -> None:
    (home / "agents").mkdir()
    (home / "agents" / "office.py").write_text(OFFICE)
    (home / "dragoman.toml").write_text(
        '[server]\nstore = "memory:"\n'
        '[agents.travel]\nfile = "agents/office.py:agent"\n'
        '[agents.bills]\nfile = "agents/office.py:billing"\n'
    )
    with serving(cwd=home) as server:
        said = send(f"{server.url}/agents/bills", "SendMessage", message("hi"))
        assert "billed hi" in str(said)
        listed = httpx2.get(f"{server.url}/agents", timeout=60).json()["agents"]
        assert [each["name"] for each in listed] == ["bills", "travel"]


def test_one_agent_with_a_name_stays_at_the_root(home: Path) -> None:
    with serving("alpha=agent.py", "--store", "memory:", cwd=home) as server:
        assert "HI" in str(send(server.url, "SendMessage", message("hi")))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "Which agent? Give its file"),
        (["agent.py", "agent.py"], "Two agents would be served at /agents/tester"),
        (["a=agent.py", "a=agent.py"], "Two agents would be served at /agents/a"),
        (["Alpha=agent.py", "agent.py"], "'Alpha' cannot be the name of an agent"),
        (["Alpha=agent.py", "agent.py"], "Write alpha."),
        (["a=none.py", "agent.py"], "There is no file none.py"),
        (["agent.py", "chinese.py"], "The agent '天气' needs a name for its address"),
        (["--config", "typo.toml"], "typo.toml:3: [agents.a]: Object contains unknown field"),
        (["--config", "wrong.toml"], "'B' cannot be the name of an agent"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_agents_are_explained(home: Path, args: list[str], says: str) -> None:
    (home / "chinese.py").write_text(AGENT.replace('"Tester"', '"天气"'))
    (home / "typo.toml").write_text('# a typo\n[agents.a]\nfiel = "agent.py"\n')
    (home / "wrong.toml").write_text('[agents.B]\nfile = "agent.py"\n')
    ended = dragoman("serve", *args, "--port", "0", cwd=home)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("\n") <= 2


@pytest.mark.parametrize("command", ["send URL hi", "card URL", "chat URL", "tasks list URL"])
def test_at_the_root_of_several_agents_a_command_names_their_addresses(
    home: Path, command: str
) -> None:
    (home / "office.py").write_text(OFFICE)
    with serving("agent.py", "bills=office.py:billing", cwd=home) as server:
        ended = dragoman(*command.replace("URL", server.url).split(), cwd=home)
        assert ended.returncode == 3
        for agent in ("tester", "bills"):
            assert f"{server.url}/agents/{agent}" in ended.stderr
        assert "Is it running" not in ended.stderr
        assert ended.stderr.count("\n") == 1
        chosen = dragoman("send", f"{server.url}/agents/bills", "hi", cwd=home)
        assert chosen.returncode == 0, chosen.stderr
