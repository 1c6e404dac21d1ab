"""The commands that talk to agents, as processes against a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pages
from cli.run import AGENT, ENVIRON, Served, dragoman, serving
from cli.terminal import settled, terminal
from dragoman import showcase
from waiting import wait_until

pytestmark = pytest.mark.slow  # starts processes

PAGE = pages.DOCS / "guide" / "cli.md"
MORE = """

@agent.skill("secret")
async def secret(turn: Turn) -> str:
    given = await turn.need_auth(["bearer"], prompt="Your library card")
    return f"{len(given)} letters"


@agent.skill("rude")
async def rude(turn: Turn) -> str:
    return "before\\x1b]0;owned\\x07\\x1b[2Jafter"


@agent.skill("fails")
async def fails(turn: Turn) -> str:
    raise turn.fail("no paper")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("server")
    long = AGENT[AGENT.index('@agent.skill("long")') :]
    source = Path(showcase.__file__).read_text("utf-8") + MORE + "\n\n" + long
    (home / "agent.py").write_text(source)
    arguments = ("agent.py", "--store", "memory:", "--no-grpc", "--allow-private")
    with serving(*arguments, cwd=home) as found:
        yield found


def state(server: Served, task: str, cwd: Path) -> str:
    shown = dragoman("tasks", "get", server.url, task, "--json", cwd=cwd)
    return str(json.loads(shown.stdout)["task"]["status"]["state"])


def test_a_pipe_gets_the_result_and_nothing_else(server: Served, tmp_path: Path) -> None:
    for more in ((), ("--stream",), ("--dialect", "a2a-0.3"), ("--dialect", "a2a-1.0-rest")):
        done = dragoman("send", server.url, "hello", *more, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "HELLO\n", "")


def test_headers_go_along(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        AGENT.replace("return turn.text.upper()", "return str(dict(turn.caller.headers))")
    )
    (tmp_path / "dragoman.toml").write_text('[server]\ncaller_headers = ["x-team"]\n')
    with serving("agent.py", "--store", "memory:", cwd=tmp_path) as found:
        for command in (("send", found.url, "x"), ("chat", found.url), ("card", found.url)):
            header = ("--header", "X-Team: {TEAM}")
            done = dragoman(*command, *header, cwd=tmp_path, TEAM="red")
            assert done.returncode == 0, done.stderr
            if command[0] == "send":
                assert done.stdout == "{'x-team': 'red'}\n"
            missing = dragoman(*command, *header, cwd=tmp_path)
            assert missing.returncode == 2
            assert "the variable TEAM, which is not set" in missing.stderr


def test_what_others_say_commands_no_terminal(server: Served, tmp_path: Path) -> None:
    done = dragoman("send", server.url, "x", "--skill", "rude", cwd=tmp_path)
    assert done.stdout == "before]0;owned[2Jafter\n"
    with terminal("send", server.url, "x", "--skill", "rude", cwd=tmp_path) as screen:
        assert screen.ends() == 0
        assert "before]0;owned[2Jafter" in screen.text
        assert b"\x1b]0;" not in screen.raw


def test_json_is_a2a_1_0_in_every_dialect(server: Served, tmp_path: Path) -> None:
    options = ("--json", "--stream", "--dialect", "a2a-0.3")
    done = dragoman("send", server.url, "hello", *options, cwd=tmp_path)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {key for line in lines for key in line} >= {"artifactUpdate", "statusUpdate", "task"}
    assert lines[-1]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert lines[-1]["task"]["artifacts"][0]["parts"] == [{"text": "HELLO"}]


def test_a_question_nobody_answers_has_its_own_exit_code(server: Served, tmp_path: Path) -> None:
    done = dragoman("send", server.url, "Oslo", "--skill", "trip", cwd=tmp_path)
    assert done.returncode == 4
    assert done.stdout == ""
    assert "How many days in Oslo?" in done.stderr
    task = done.stderr.split()[-1]
    watched = dragoman("tasks", "watch", server.url, task, cwd=tmp_path)
    assert watched.returncode == 4
    done = dragoman("send", server.url, "1", "--task", task, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Day 1 in Oslo: arrive and walk.\n")


def test_files_go_and_come(server: Served, tmp_path: Path) -> None:
    done = dragoman("send", server.url, "x", "--skill", "report", "--save", "in", cwd=tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "in" / "report.csv").read_text().startswith("month,sales\n")
    sent = ("--file", "in/report.csv", "--data", '{"a": 1}', "--json")
    done = dragoman("send", server.url, *sent, cwd=tmp_path)
    parts = json.loads(done.stdout)["task"]["history"][0]["parts"]
    assert [part.get("filename", part.get("data")) for part in parts] == ["report.csv", {"a": 1}]


@pytest.mark.parametrize(
    ("args", "code", "says", "next_"),
    [
        (("send", "http://127.0.0.1:9", "x"), 3, "cannot be reached", "is the address right?"),
        (("send", "URL", "x", "--task", "none"), 1, "no such task", "dragoman tasks list"),
        (("send", "URL", "x", "--skill", "fails"), 1, "no paper", ""),
        (("send", "URL"), 2, "nothing to send", ""),
        (("send", "URL", "x", "--file", "none"), 2, "no file none", ""),
        (("send", "URL", "--data", "{"), 2, "not JSON", ""),
        (("send", "URL", "x", "--dialect", "klingon"), 2, "klingon", ""),
        (("send", "two words", "x"), 2, "no address", ""),
        (("tasks", "cancel", "URL", "none"), 1, "no such task", "dragoman tasks list"),
        (("hooks", "set", "URL", "none", "ftp://x"), 2, "https://", ""),
        (("bench", "https://example.com"), 2, "--anywhere", ""),
        (("bench", "URL", "--count", "0"), 2, "--count", ""),
        (("listen", "--host", "0.0.0.0"), 2, "--insecure", ""),
        (("card", "http://127.0.0.1:9"), 3, "cannot be reached", ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_errors_say_what_to_do(
    server: Served, tmp_path: Path, args: tuple[str, ...], code: int, says: str, next_: str
) -> None:
    done = dragoman(*(server.url if a == "URL" else a for a in args), cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert next_ in done.stderr
    assert "Traceback" not in done.stderr


def test_tasks_are_listed_shown_and_canceled(server: Served, tmp_path: Path) -> None:
    begun = dragoman("send", server.url, "x", "--skill", "long", "--no-wait", cwd=tmp_path)
    task = begun.stdout.strip()
    listed = dragoman("tasks", "list", server.url, "--state", "working", cwd=tmp_path)
    assert task in listed.stdout
    canceled = dragoman("tasks", "cancel", server.url, task, cwd=tmp_path)
    assert (canceled.returncode, canceled.stdout) == (0, "canceled\n")
    shown = dragoman("tasks", "get", server.url, task, cwd=tmp_path)
    assert shown.returncode == 1
    assert "canceled" in shown.stdout


def test_hooks_and_listen(server: Served, tmp_path: Path) -> None:
    listening = subprocess.Popen(
        [sys.executable, "-m", "dragoman", "listen", "--port", "0", "--json"],
        cwd=tmp_path,
        env={**ENVIRON, "DRAGOMAN_HOOK_TOKEN": "t-4711"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert listening.stdout is not None
        told = json.loads(listening.stdout.readline())
        assert "token" not in told
        asked = dragoman("send", server.url, "Rom", "--skill", "trip", "--json", cwd=tmp_path)
        task = json.loads(asked.stdout)["task"]["id"]
        where = (server.url, task)
        made = dragoman(
            "hooks",
            "set",
            *where,
            told["url"],
            "--json",
            cwd=tmp_path,
            DRAGOMAN_HOOK_TOKEN="t-4711",
        )
        assert made.returncode == 0, made.stderr
        assert "t-4711" not in made.stdout
        hook = json.loads(made.stdout)["id"]
        assert hook in dragoman("hooks", "list", *where, cwd=tmp_path).stdout
        dragoman("send", server.url, "1", "--task", task, cwd=tmp_path)
        heard = json.loads(listening.stdout.readline())
        assert heard["signed"] is True
        assert task in json.dumps(heard)
        assert dragoman("hooks", "delete", *where, hook, cwd=tmp_path).returncode == 0
        assert "no webhooks" in dragoman("hooks", "list", *where, cwd=tmp_path).stdout
        listening.send_signal(signal.SIGINT)
        assert listening.wait(5) == 0
    finally:
        listening.kill()
        listening.communicate()


def test_the_sheet_of_a_card(server: Served, tmp_path: Path) -> None:
    shown = dragoman("card", server.url, cwd=tmp_path)
    assert shown.returncode == 0
    for words in ("Showcase", "trip", "HTTP+JSON", "nothing is asked for", "not signed", "none"):
        assert words in shown.stdout
    told = json.loads(dragoman("card", server.url, "--json", cwd=tmp_path).stdout)
    assert (told["problems"], told["signature"]["state"]) == ([], "not signed")


def test_a_bench_is_bounded(server: Served, tmp_path: Path) -> None:
    for more in ((), ("--stream",)):
        args = ("--count", "20", "--seconds", "5", "--connections", "4", "--json", *more)
        done = dragoman("bench", server.url, *args, cwd=tmp_path)
        told = json.loads(done.stdout)
        assert (done.returncode, told["answered"], told["errors"]) == (0, 20, {})
        assert ("first_event_ms" in told) == bool(more)
    failing = dragoman("bench", server.url, "--skill", "fails", "--count", "2", cwd=tmp_path)
    assert failing.returncode == 1
    assert "2 x failed" in failing.stdout


def test_ctrl_c_cancels_the_task_at_the_server(server: Served, tmp_path: Path) -> None:
    with terminal("send", server.url, "x", "--skill", "long", cwd=tmp_path) as screen:
        screen.until("1 2 3")
        screen.interrupt()
        assert screen.ends() == 130
        assert "canceled in" in screen.text
        task = screen.text.split()[-1]
    assert state(server, task, tmp_path) == "TASK_STATE_CANCELED"


def test_ctrl_c_at_a_question_cancels_the_task_at_the_server(
    server: Served, tmp_path: Path
) -> None:
    with terminal("send", server.url, "Oslo", "--skill", "trip", cwd=tmp_path) as screen:
        screen.until("How many days in Oslo?\n?")
        screen.interrupt()
        assert screen.ends() == 130
        assert "Canceling" in screen.text
    listed = dragoman("tasks", "list", server.url, "--json", cwd=tmp_path)
    newest = json.loads(listed.stdout)["tasks"][0]
    assert newest["status"]["state"] == "TASK_STATE_CANCELED"


def test_ctrl_c_while_watching_leaves_the_task_alone(server: Served, tmp_path: Path) -> None:
    begun = dragoman("send", server.url, "x", "--skill", "long", "--no-wait", cwd=tmp_path)
    task = begun.stdout.strip()
    with terminal("tasks", "watch", server.url, task, cwd=tmp_path) as screen:
        screen.until("1 2")
        screen.interrupt()
        assert screen.ends() == 130
    assert state(server, task, tmp_path) == "TASK_STATE_WORKING"
    dragoman("tasks", "cancel", server.url, task, cwd=tmp_path)


def test_a_secret_is_asked_for_without_echo(server: Served, tmp_path: Path) -> None:
    with terminal("send", server.url, "x", "--skill", "secret", cwd=tmp_path) as screen:
        screen.until("Token:")
        wait_until(lambda: not screen.echoes)
        screen.type("4711abc\n")
        assert screen.ends() == 0
        assert "7 letters" in screen.text
        assert b"4711abc" not in screen.raw


def test_a_chat_with_questions_approvals_files_and_commands(server: Served, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hi")
    with terminal("chat", server.url, cwd=tmp_path) as screen:
        for typed, seen in (
            ("hello", "HELLO"),
            ("/nix", "There is no /nix"),
            ("/file note.txt", "note.txt will be attached"),
            ("/skill order", "> /skill order"),
            ("two boxes", "[y/n]"),
            ("maybe", "Please answer y or n."),
            ("n", "Not approved"),
            ("/skill long", "> /skill long"),
            ("go", "1 2 3"),
        ):
            screen.type(typed + "\n")
            screen.until(seen)
        screen.interrupt()
        screen.until("canceled")
        screen.type("/history\n")
        screen.until("you: two boxes")
        screen.type("/quit\n")
        assert screen.ends() == 0
    kept = tmp_path / "config" / "chat_history"
    assert "two boxes" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def test_a_command_at_a_question_of_a_chat_is_not_the_answer(
    server: Served, tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_text("hi")
    with terminal("chat", server.url, "--skill", "trip", cwd=tmp_path) as screen:
        screen.type("Oslo\n")
        screen.until("How many days in Oslo?\n?")
        screen.type("/skill\n")
        screen.until("* trip")
        screen.until("order")  # the whole list, and then the question again
        wait_until(lambda: screen.count("How many days in Oslo?") == 2)
        screen.type("/file note.txt\n")
        screen.until("note.txt will be attached")
        wait_until(lambda: screen.count("How many days in Oslo?") == 3)
        screen.type("1\n")
        screen.until("Day 1 in Oslo: arrive and walk.")
        screen.type("/skill order\n")
        screen.type("a box\n")
        screen.until("[y/n]")
        screen.type("/cancel\n")
        screen.until("canceled")
        screen.type("/skill report\n")
        screen.type("go\n")
        screen.until("/save DIR keeps files.")
        assert "--save" not in screen.text
        screen.type("/quit\n")
        assert screen.ends() == 0
    listed = dragoman("tasks", "list", server.url, "--json", cwd=tmp_path)
    tasks = json.loads(listed.stdout)["tasks"]
    states = [each["status"]["state"].removeprefix("TASK_STATE_") for each in tasks[:3]]
    assert states == ["COMPLETED", "CANCELED", "COMPLETED"]


def test_a_chat_through_a_pipe_says_line_after_line(server: Served, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dragoman", "chat", server.url, "--skill", "trip"],
        input="Rom\n1\n",
        cwd=tmp_path,
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "How many days in Rom?\nDay 1 in Rom: arrive and walk.\n"
    assert done.returncode == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(tmp_path: Path, shell: str) -> None:
    script = dragoman("completion", shell, cwd=tmp_path)
    assert script.returncode == 0
    for word in ("tasks", "no-wait", "watch"):
        assert word in script.stdout


def test_help_imports_no_command() -> None:
    code = "import sys\nfrom dragoman.cli import main\ntry:\n    main(['--help'])\nfinally:\n"
    code += "    print(*sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    loaded = set(done.stderr.split())
    assert "dragoman.cli" in loaded
    assert not {name for name in loaded if name.startswith("dragoman.cli.")}
    heavy = ("dragoman.agent", "msgspec", "cyclopts", "rich", "asyncio", "importlib.metadata")
    assert [name for name in heavy if name in loaded] == []


def sessions(server: Served, cwd: Path) -> dict[str, str]:
    """The terminal sessions of the docs, as they are now."""
    url, found = server.url, {}
    with terminal("send", url, "Kyoto", "--skill", "trip", cwd=cwd) as screen:
        screen.until("\n?")
        screen.type("2\n")
        assert screen.ends() == 0
        found["send"] = f"$ dragoman send {url} Kyoto --skill trip\n{screen.text}\n"
    with terminal("chat", url, "--no-history", cwd=cwd) as screen:
        screen.until("\n>")
        for typed, seen in (
            ("hello", "HELLO"),
            ("/skill order", "> /skill order"),
            ("two boxes of tea", "[y/n]"),
            ("y", '"order"'),
        ):
            screen.type(typed + "\n")
            screen.until(seen)
        screen.until("}")
        screen.type("/quit\n")
        assert screen.ends() == 0
        found["chat"] = f"$ dragoman chat {url}\n{screen.text}\n"
    shown = settled(found["chat"], url)
    found["chat"] = "\n".join(
        '  "order": "T-6421"' if '"order"' in s else s for s in shown.split("\n")
    )
    return {name: settled(text, url) for name, text in found.items()}


def test_the_sessions_in_the_docs_are_as_they_are_now(server: Served, tmp_path: Path) -> None:
    """`DRAGOMAN_RECORD=1` writes them anew."""
    page = PAGE.read_text("utf-8")
    for name, text in sessions(server, tmp_path).items():
        head, mark, rest = page.partition(f"<!-- session: {name} -->\n")
        assert mark, name
        _, fence, after = rest.partition("\n```\n")
        page = f"{head}{mark}```text\n{text.rstrip()}{fence}{after}"
    if os.environ.get("DRAGOMAN_RECORD"):
        PAGE.write_text(page, "utf-8")
    assert page == PAGE.read_text("utf-8"), "run this test with DRAGOMAN_RECORD=1"
