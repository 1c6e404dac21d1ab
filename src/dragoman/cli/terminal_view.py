"""The live view of a task on a terminal.

Growing text is printed line by line, and printed lines stay. Only the unfinished line and the line
of state below it are redrawn: they are in the last rows of the terminal and disappear when the task
has ended or waits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from dragoman.client.auth.origins import printable
from dragoman.core.events import ArtifactChunk, Asked, Note, Noted, Snapshot, Stamped, StateChanged
from dragoman.core.extensions import PROGRESS
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import Artifact, Message, State, Task
from dragoman.core.model import Text as TextPart

from . import formatting
from .view import Shown

BAR = 24
MOST_ROWS = 4
"""The number of rows of an unfinished line that are redrawn; the rows above them are printed."""
REFRESH = 8


def console() -> Console:
    """Returns a console for standard output, with colours only on a terminal that wants them."""
    return Console(highlight=False)


class OnTerminal:
    """A live view on a terminal."""

    shows: Shown = "state"

    def __init__(self, console: Console, *, closing: bool = True) -> None:
        self._console = console
        self._closing = closing
        self._live: Live | None = None
        self._forget()

    def _forget(self) -> None:
        self._began = time.monotonic()
        self._state = State.SUBMITTED
        self._progress: tuple[float, float | None] | None = None
        self._partial = ""
        self._artifact = ""
        self._shown: set[str] = set()
        self._said: set[tuple[str, str]] = set()

    def begin(self) -> None:
        """Shows a line of state."""
        self._forget()
        self._live = Live(
            get_renderable=self._footer,
            console=self._console,
            transient=True,
            refresh_per_second=REFRESH,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def tell(self, entry: Stamped | Message) -> None:
        """Prints what is finished, and remembers the rest for the last rows."""
        if isinstance(entry, Message):
            return  # `end` has it
        match entry.event:
            case ArtifactChunk(artifact=artifact, append=append):
                self._chunk(artifact, append=append)
            case Snapshot(task=task):
                self._state = task.state
                for artifact in task.artifacts:
                    self._chunk(artifact, append=False)
                self._say(formatting.messages_inside(task))
            case StateChanged(state=state, message=message, metadata=metadata):
                self._state = state
                self._progress = _progress_in(metadata) or self._progress
                if message is not None and state not in FINAL | WAITING:
                    self._say([message])
            case Asked() as asked:
                self._state = asked.state
            case Noted(kind=kind, body=body):
                self._work(kind, body)

    def end(self, result: Task | Message) -> None:
        """Removes the live rows, and prints a line about the end."""
        self._flush()
        self.stop()
        if isinstance(result, Message):
            self._print(formatting.message_words(result))
            return
        if self._shown or self._said:
            self._say(formatting.messages_inside(result), style="")
        elif text := formatting.result_words(result):
            self._print(text)
        self._summary(result)

    def stop(self) -> None:
        """Removes the live rows."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def note(self, text: str) -> None:
        """Prints a dim line."""
        self._flush()
        self._print(formatting.clean(text), "dim")

    def _summary(self, task: Task) -> None:
        said = task.status.message
        why = formatting.message_words(said) if said is not None else ""
        done = task.state is State.COMPLETED
        if task.state in FINAL and not done and why:
            self._print(why)
        if task.state in WAITING or (done and not self._closing):
            return
        line = Text(task.state.value, formatting.COLOURS.get(task.state, "cyan"))
        if self._closing:
            seconds = time.monotonic() - self._began
            line.append(f" in {seconds:.1f} s, task {printable(task.id, 80)}", "dim")
        self._console.print(line, soft_wrap=True)

    def _chunk(self, artifact: Artifact, *, append: bool) -> None:
        key = artifact.artifact_id
        if key != self._artifact or not append:
            self._flush()
            if key in self._shown and not append:
                self._print("(begins again)", "dim")
            if artifact.name and (key not in self._shown or key != self._artifact):
                self._print(formatting.line(artifact.name, 80), "bold")
        self._artifact = key
        self._shown.add(key)
        for part in artifact.parts:
            if isinstance(part, TextPart):
                self._grow(formatting.clean(part.text))
            else:
                self._flush()
                self._print(formatting.part_words(part))

    def _grow(self, text: str) -> None:
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._print(line)
        width = self._console.width
        if cell_len(self._partial) > MOST_ROWS * width:
            *rows, last = Text(self._partial).wrap(self._console, width)
            for row in rows:
                self._console.print(row, soft_wrap=True)
            self._partial = last.plain

    def _flush(self) -> None:
        partial, self._partial = self._partial, ""
        if partial.strip():
            self._print(partial.rstrip())

    def _say(self, messages: Iterable[Message], style: str = "italic") -> None:
        """Prints messages that were not printed before."""
        for message in messages:
            text = formatting.message_words(message)
            if (message.message_id, text) not in self._said:
                self._said.add((message.message_id, text))
                self._flush()
                self._print(text, style)

    def _work(self, kind: Note, body: object) -> None:
        told = body if isinstance(body, dict) else {}
        text = told.get("text") or told.get("message") or formatting.line(body)
        self._flush()
        self._print(f"{kind.value}: {formatting.clean(str(text))}", "dim italic")

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style), highlight=False)

    def _footer(self) -> RenderableType:
        seconds = time.monotonic() - self._began
        line = Text(self._state.value, formatting.COLOURS.get(self._state, "cyan"))
        if self._progress is not None:
            fraction, eta = self._progress
            full = round(fraction * BAR)
            line.append("  ").append("━" * full, "green").append("━" * (BAR - full), "dim")
            line.append(f" {fraction:4.0%}")
            if eta is not None:
                line.append(f", {eta:.0f} s left")
        line.append(f"  {seconds:.0f} s", "dim")
        line.append("  Ctrl-C cancels", "dim")
        line.no_wrap, line.overflow = True, "ellipsis"
        return Group(Text(self._partial), line) if self._partial else line


def _progress_in(metadata: dict[str, object] | None) -> tuple[float, float | None] | None:
    """Returns the progress of the work, if the agent reports it (docs/extensions/work.md)."""
    told = (metadata or {}).get(PROGRESS)
    fraction = told.get("fraction") if isinstance(told, dict) else None
    if not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        return None
    eta = told.get("eta") if isinstance(told, dict) else None
    return float(fraction), float(eta) if isinstance(eta, int | float) and eta >= 0 else None
