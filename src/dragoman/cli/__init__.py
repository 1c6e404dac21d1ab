"""The command line. Commands are imported when they run, so `--help` stays quick."""

from __future__ import annotations

import errno
import os
import sys
from importlib.metadata import version

from cyclopts import App, CycloptsError, Parameter

from dragoman.core.errors import DragomanError

HELP = """Write an agent once, speak every agent-to-agent dialect.

Start with `dragoman demo`, then `dragoman new my-agent`; talk to any agent with `dragoman send`.
"""


COMMANDS = {
    "serve": ("serve", "Serve the agent in a Python file, or several agents, until Ctrl-C."),
    "demo": ("serve", "Start the showcase agent and watch it work."),
    "new": ("serve", "Write a ready agent project with its test."),
    "send": ("talk", "Say something to an agent, and see what comes of it."),
    "chat": ("talk", "Talk with an agent in the terminal."),
    "card": ("talk", "Show an agent's card; sign, verify and validate cards."),
    "tasks": ("talk", "List, show, watch and cancel tasks of an agent."),
    "hooks": ("talk", "Have an agent call a webhook."),
    "listen": ("talk", "Receive webhooks, and print what arrives."),
    "login": ("talk", "Log in to an agent as its card asks for it."),
    "doctor": ("operate", "Check any A2A agent against the specification."),
    "bench": ("operate", "Measure how fast an agent answers."),
    "outbox": ("operate", "Look at what webhooks are told, and tell it again."),
    "approvals": ("operate", "List and answer what waits for approval."),
    "iat": ("serve", "Run a host that has sub-agents over IAT."),
    "data": ("operate", "Give out or erase what is kept."),
    "keys": ("operate", "Make keys that sign cards."),
    "completion": ("operate", "Print a script that completes commands in your shell."),
}
"""The folder of each command, and its summary. A command is the function or the group of its name
in the module of its name."""


def build(asked: str = "") -> App:
    """The tree of commands. The one that is `asked` for tells all about itself in its help; of the
    others the summary is enough, and nothing is imported."""
    app = App(
        name="dragoman",
        help=HELP,
        version=lambda: version("dragoman"),
        help_format="markdown",
        default_parameter=Parameter(negative=(), show_default=_worth_telling),
        exit_on_error=False,
        print_error=False,
    )
    for name, (folder, summary) in COMMANDS.items():
        about = None if name == asked else summary
        app.command(f"dragoman.cli.{folder}.{name}:{name}", name=name, help=about)
    return app


def _worth_telling(default: object) -> str | None:
    """Returns a default as help shows it. Defaults that are off, empty or None are not shown."""
    return str(default) if default else None


def main(tokens: list[str] | None = None) -> None:
    """Runs a command. A user's mistake is one or two lines and exit code 2, never a traceback."""
    given = sys.argv[1:] if tokens is None else tokens
    _open_what_is_closed()
    try:
        try:
            build(next(iter(given), ""))(given)
        finally:
            sys.stdout.flush()  # so that a disk that is full is told here
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
    except OSError as exc:  # of the machine we run on; those of others are a `DragomanError`
        if exc.errno == errno.ENOSPC:  # what is left to write must not fail once more at the exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        where = f": {exc.filename}" if exc.filename else ""
        complain(f"{exc.strerror or exc}{where}", code=1)


def _open_what_is_closed() -> None:
    """Replaces standard streams that are closed: with `>&-` Python has None in their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  until the process ends


def complain(*lines: str, code: int = 2) -> None:
    """Says what is wrong and what to do, then ends."""
    print("dragoman:", "\n".join(lines), file=sys.stderr)
    sys.exit(code)
