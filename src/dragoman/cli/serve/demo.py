"""`dragoman demo`: agents in every dialect, a gateway between them, and a guided tour."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console

if TYPE_CHECKING:
    from .tour import Stage

PORT = 8420


def demo(
    *,
    port: Annotated[
        int, Parameter(alias="-p", help="Port to use; a free one if it is taken.")
    ] = PORT,
    stay: Annotated[
        bool | None,
        Parameter(
            help="Keep serving after the tour until Ctrl-C. [default: on a terminal]",
            negative="--no-stay",
        ),
    ] = None,
) -> None:
    """Start agents in every dialect and a gateway, watch them talk, then talk to them yourself."""
    from .tour import Stage, tour_dialects

    console = Console(highlight=False, soft_wrap=True)
    staying = sys.stdout.isatty() if stay is None else stay
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)  # so that the servers never outlive the demo
    folder = Path(tempfile.mkdtemp(prefix="dragoman-demo-"))
    stage: Stage | None = None
    try:
        stage = Stage(port, tour_dialects(), folder)
        asyncio.run(_run(console, stage, staying=staying))
    except KeyboardInterrupt:
        console.print()
    finally:
        if stage is not None:
            stage.stop()
        shutil.rmtree(folder, ignore_errors=True)
    console.print("The demo has ended; its store is removed.")


async def _run(console: Console, stage: Stage, *, staying: bool) -> None:
    from .tour import Tour

    # The phones listen before any agent dials, so that none has to try again.
    async with stage.phones.listening():
        await Tour(console, stage).run()
        if staying:
            console.print(f"\n   log   {stage.gateway.log}", markup=False)
            console.print("\nStill serving. [bold]Ctrl-C[/bold] stops it.")
            await stage.wait()


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
