"""Records the terminal pictures of the docs anew: `python docs/pictures.py`, or `make pictures`.

Each picture is a real session on a terminal. Its address is shown as the usual one. The tests
compare the words in the pictures with what the commands print now.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

DOCS = Path(__file__).resolve().parent
FOLDER = DOCS / "pictures"
sys.path.insert(0, str(DOCS.parent / "tests"))

WIDTH = 92
"""The columns of a picture: the table of the demo needs so many."""
USUAL = "http://127.0.0.1:8420"
STEADY = {
    rb"\S*python[\d.]* -m dragoman": b"dragoman",
    rb"grpc://127\.0\.0\.1:\d+": b"grpc://127.0.0.1:8421",
    rb"IAT_SECRET=[0-9a-f]+": b"IAT_SECRET=0123456789abcdef",
    rb"\.{4,}": b"...",
}
"""What differs each time, or from machine to machine, as the picture of the demo shows it."""
CHAT = (
    ("hello", "HELLO"),
    ("/skill order", "> /skill order"),
    ("two boxes of tea", "[y/n]"),
    ("y", '"order"'),
)
"""What is typed in a chat, and what is then seen: the session that `docs/guide/cli.md` shows."""
COLOURS = {"brown": "yellow", "brightblack": "bright_black"}
"""What pyte calls otherwise than Rich does."""
THEME = TerminalTheme(
    (13, 17, 23),
    (201, 209, 217),
    [
        *((72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34)),
        *((88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196)),
    ],
)
SVG = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def words_of(name: str) -> str:
    """Returns the text of a picture, line by line."""
    svg = (FOLDER / f"{name}.svg").read_text("utf-8")
    rows: dict[float, list[tuple[float, str]]] = {}
    found = re.findall(r'<text class="[^"]*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', svg)
    for x, y, text in found:
        rows.setdefault(float(y), []).append((float(x), _unescaped(text)))
    lines = ["".join(text for _, text in sorted(rows[y])).rstrip() for y in sorted(rows)]
    return "\n".join(lines)


def _unescaped(text: str) -> str:
    for entity, char in (("&#160;", " "), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"')):
        text = text.replace(entity, char)
    return text.replace("&#x27;", "'").replace("&amp;", "&")


def draw(name: str, command: str, raw: bytes) -> None:
    """Writes the picture of a session: the command, and what the terminal got."""
    screen = pyte.Screen(WIDTH, 400)
    pyte.ByteStream(screen).feed(raw)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}", style="bold"))
    height = max(number for number, line in enumerate(screen.display) if line.strip()) + 1
    for number in range(height):
        console.print(_line(screen, number), no_wrap=True, overflow="crop")
    svg = console.export_svg(title="", theme=THEME, code_format=SVG, unique_id=name)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.svg").write_text(svg, "utf-8")
    print(f"Wrote docs/pictures/{name}.svg")


def _line(screen: pyte.Screen, number: int) -> Text:
    """Returns one line of a screen with its colours."""
    cells = [screen.buffer[number][each] for each in range(len(screen.display[number].rstrip()))]
    line = Text()
    for (colour, bold), run in groupby(cells, lambda cell: (cell.fg, cell.bold)):
        known = None if colour == "default" else COLOURS.get(colour, colour)
        line.append("".join(cell.data for cell in run), Style(color=known, bold=bold))
    return line


@contextmanager
def _showcase(folder: Path) -> Iterator[str]:
    from cli.run import serving
    from dragoman import showcase

    with serving(showcase.__file__, "--store", "memory:", cwd=folder) as server:
        yield server.url


def record_demo(folder: Path) -> None:
    """Records the whole tour."""
    from cli.terminal import terminal

    with terminal("demo", "--port", "0", "--no-stay", cwd=folder, width=WIDTH) as screen:
        if screen.ends(600) != 0:
            raise SystemExit(screen.text)
        found = re.search(rb"http://127\.0\.0\.1:\d+", screen.raw)
        raw = screen.raw.replace(found[0], USUAL.encode()) if found else screen.raw
    for pattern, steady in STEADY.items():
        raw = re.sub(pattern, steady, raw)
    draw("demo", "dragoman demo", raw)


def record_chat(folder: Path) -> None:
    """Records a conversation."""
    from cli.terminal import terminal

    with (
        _showcase(folder) as url,
        terminal("chat", url, "--no-history", cwd=folder, width=WIDTH) as screen,
    ):
        screen.until("\n>")
        for typed, seen in CHAT:
            screen.type(typed + "\n")
            screen.until(seen)
        screen.until("}")
        screen.type("/quit\n")
        screen.ends()
        draw("chat", f"dragoman chat {USUAL}", screen.raw.replace(url.encode(), USUAL.encode()))


def record_doctor(folder: Path) -> None:
    """Records an examination of an agent of ours."""
    from cli.terminal import terminal
    from doctor.publish import own

    with (
        own(folder) as url,
        terminal("doctor", url, "--slow-text", "slow go", cwd=folder, width=WIDTH) as screen,
    ):
        screen.ends(600)
        command = f'dragoman doctor {USUAL} --slow-text "slow go"'
        draw("doctor", command, screen.raw.replace(url.encode(), USUAL.encode()))


if __name__ == "__main__":
    for record in (record_chat, record_doctor, record_demo):
        with tempfile.TemporaryDirectory() as made:
            record(Path(made))
