"""The command line. Commands are imported when they run, so `--help` stays quick."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

from dragoman import __version__

if TYPE_CHECKING:
    from cyclopts import App

HELP = """Write an agent once and serve it in every agent-to-agent dialect.

Start with `dragoman demo`, then `dragoman new my-agent`; call any agent with `dragoman send`.
"""


COMMANDS = {
    "serve": ("serve", "Serve the agent in a Python file, or several agents, until Ctrl-C."),
    "gateway": ("serve", "Serve agents that are elsewhere, in any dialect, in every dialect."),
    "agents": ("operate", "List, find, add and remove the agents of a gateway."),
    "demo": ("serve", "Start agents in every dialect and a gateway, and watch them talk."),
    "new": ("serve", "Create an agent project with a test."),
    "send": ("talk", "Send a message to an agent and show the result."),
    "chat": ("talk", "Chat with an agent in the terminal."),
    "card": ("talk", "Show an agent's card; sign, verify and validate cards."),
    "tasks": ("talk", "List, show, watch and cancel tasks of an agent."),
    "hooks": ("talk", "Set, show and delete the webhooks of a task."),
    "listen": ("talk", "Receive webhooks and print them."),
    "login": ("talk", "Log in to an agent with the scheme that its card requires."),
    "doctor": ("operate", "Check any A2A agent against the specification."),
    "bench": ("operate", "Measure how fast an agent responds."),
    "outbox": ("operate", "Show webhook deliveries, and redeliver dead letters."),
    "approvals": ("operate", "List and answer pending approvals."),
    "iat": ("serve", "Run a host of IAT sub-agents."),
    "xiaoyi": ("serve", "Make and revoke the keys of agents that dial in over XiaoYi links."),
    "lite": ("serve", "Put an agent into chat rooms, and list the agents that were met there."),
    "mcp": ("serve", "Offer the skills of agents as MCP tools on standard input and output."),
    "replicas": ("operate", "Show the processes that serve from one store."),
    "data": ("operate", "Export or erase stored tasks, or copy a store."),
    "keys": ("operate", "Create keys that sign cards."),
    "completion": ("operate", "Print a completion script for your shell."),
}
"""The folder of each command, and its summary. A command is the function or the group of its name
in the module of its name."""


EXAMPLES = {
    "": """
dragoman demo
dragoman new my-agent
dragoman serve agent.py
dragoman send http://127.0.0.1:8420 hello
""",
    "serve": """
dragoman serve agent.py
dragoman serve agent.py --reload -p 9000
dragoman serve travel=travel.py weather=weather.py:agent --store memory:
""",
    "gateway": """
dragoman gateway
dragoman gateway agents.toml --watch -p 8500
dragoman gateway status --url http://127.0.0.1:8420
""",
    "agents": """
dragoman agents list --url http://127.0.0.1:8420
dragoman agents add alpha http://127.0.0.1:9001 --url http://127.0.0.1:8420
""",
    "new": """
dragoman new my-agent
""",
    "send": """
dragoman send http://127.0.0.1:8420 "Three days in Kyoto"
dragoman send agent.example.com "Sum this up" -f report.pdf -o results
dragoman send agent.example.com -s plan -d '{"city": "Kyoto"}' --json
""",
    "chat": """
dragoman chat http://127.0.0.1:8420
dragoman chat iat+ws://agent.example.com/iat/ws --to travel
""",
    "card": """
dragoman card http://127.0.0.1:8420
dragoman card validate card.json
dragoman card verify agent.example.com --key trusted.jwk
""",
    "tasks": """
dragoman tasks list http://127.0.0.1:8420 --state input-required
dragoman tasks watch http://127.0.0.1:8420 TASK
""",
    "hooks": """
dragoman hooks set http://127.0.0.1:8420 TASK https://hooks.example.com/a2a
""",
    "listen": """
dragoman listen -p 9000
""",
    "login": """
dragoman login agent.example.com
""",
    "doctor": """
dragoman doctor http://127.0.0.1:8420
dragoman doctor agent.example.com --only 'card.*' -v
""",
    "bench": """
dragoman bench http://127.0.0.1:8420 --count 1000
""",
    "replicas": """
dragoman replicas --store postgresql://dragoman@db.internal/dragoman
dragoman replicas --url http://127.0.0.1:8420 --json
""",
    "approvals": """
dragoman approvals list --store sqlite:///dragoman.db
""",
}
"""Command lines that the help of a command, or of all, ends with."""


def build(asked: str = "") -> App:
    """Builds the tree of commands. Only the command in `asked` is imported, for its full help; the
    others appear with their summary."""
    from cyclopts import App, Parameter

    app = App(
        name="dragoman",
        help=HELP,
        version=__version__,
        help_format="markdown",
        help_epilogue=_examples(asked),
        default_parameter=Parameter(negative=(), show_default=_worth_telling),
        exit_on_error=False,
        print_error=False,
    )
    for name, (folder, summary) in COMMANDS.items():
        about = None if name == asked else summary
        app.command(f"dragoman.cli.{folder}.{name}:{name}", name=name, help=about)
    return app


def overview() -> str:
    """Returns the help of the program as a whole."""
    listed = "\n".join(f"  {name:12}{summary}" for name, (_, summary) in COMMANDS.items())
    examples = EXAMPLES[""].strip().replace("\n", "\n  ")
    return (
        f"Usage: dragoman COMMAND [OPTIONS]\n\n{HELP.strip()}\n\nCommands:\n{listed}\n\n"
        f"Options:\n  --help, -h  Show this text, or that of a command: dragoman COMMAND --help\n"
        f"  --version   Show the version\n\nExamples:\n  {examples}"
    )


def _examples(command: str) -> str:
    """Returns the end of a help text, as Markdown: command lines to copy."""
    lines = EXAMPLES.get(command if command in COMMANDS else "")
    return f"Examples:\n\n```text{lines}```\n" if lines else ""


def _worth_telling(default: object) -> str | None:
    """Returns a default as help shows it. Defaults that are off, empty or None are not shown."""
    return str(default) if default else None


def main(tokens: list[str] | None = None) -> None:
    """Runs a command. A mistake of the user is reported in one or two lines with exit code 2, never
    as a traceback."""
    given = sys.argv[1:] if tokens is None else tokens
    _open_what_is_closed()
    if not given or given[0] in ("--help", "-h", "--version"):
        # Answered without any import: this is the first thing that people try.
        print(__version__ if "--version" in given else overview(), flush=True)
        return
    from dragoman.server.process.tuning import postpone_collection

    postpone_collection()
    from cyclopts import CycloptsError

    from dragoman.core.errors import DragomanError

    try:
        try:
            build(next(iter(given), ""))(given)
        finally:
            sys.stdout.flush()  # so that a full disk is reported here
    except CycloptsError as exc:
        chain = " ".join(("dragoman", *(exc.command_chain or ())))
        complain(" ".join(str(exc).split()), f"See: {chain} --help")
    except DragomanError as exc:
        complain(exc.message)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `dragoman ... | head`
        sys.stderr.close()
        sys.exit(141)
    except OSError as exc:  # a local failure; the failures of an agent are a `DragomanError`
        if exc.errno == errno.ENOSPC:  # the flush at exit must not fail a second time
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        where = f": {exc.filename}" if exc.filename else ""
        complain(f"{exc.strerror or exc}{where}", code=1)


def _open_what_is_closed() -> None:
    """Replaces standard streams that are closed: with `>&-` Python has None in their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  until the process ends


def complain(*lines: str, code: int = 2) -> None:
    """Prints what is wrong and what to do, and exits."""
    log = sys.modules.get("dragoman.observability.log")  # a command that has none need not load it
    if log is not None and log.log_error(" ".join(lines)):
        sys.exit(code)
    print("dragoman:", "\n".join(lines), file=sys.stderr)
    sys.exit(code)
