"""The command line. Commands are imported when they run, so `--help` stays quick."""

from __future__ import annotations

import sys
from importlib.metadata import version

from cyclopts import App, CycloptsError

from ..errors import DragomanError

HELP = """Write an agent once, speak every agent-to-agent dialect.

Start with `dragoman demo`, then `dragoman new my-agent`.
"""


def build() -> App:
    """The tree of commands."""
    app = App(
        name="dragoman",
        help=HELP,
        version=lambda: version("dragoman"),
        help_format="markdown",
        exit_on_error=False,
        print_error=False,
    )
    for name, summary in (
        ("serve", "Serve the agent in a Python file until Ctrl-C."),
        ("demo", "Start the showcase agent and watch it work."),
        ("new", "Write a ready agent project with its test."),
    ):
        app.command(f"dragoman.cli.{name}:{name}", name=name, help=summary)
    app.command(
        "dragoman.cli.outbox:outbox",
        name="outbox",
        help="Look at what webhooks are told, and tell it again.",
    )
    app.command("dragoman.cli.data:data", name="data", help="Give out or erase what is kept.")
    return app


def main(tokens: list[str] | None = None) -> None:
    """Runs a command. A user's mistake is one or two lines and exit code 2, never a traceback."""
    try:
        build()(tokens)
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


def complain(*lines: str) -> None:
    """Says what is wrong and what to do, then ends."""
    print("dragoman:", "\n".join(lines), file=sys.stderr)
    sys.exit(2)
