"""Runs the tests of a script in the environment of a framework: `python checks.py SCRIPT FOLDER`.

Prints one JSON line for each test. It needs the standard library only, since there is no pytest in
those environments.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import os
import sys
import traceback
from pathlib import Path

PATIENCE = 120.0
"""Seconds for one test: it only catches a hang."""


async def _within(test: object) -> None:
    async with asyncio.timeout(PATIENCE):
        await test  # type: ignore[misc]  # a coroutine


def main(script: Path, folder: Path) -> None:
    """Every test runs in a folder of its own."""
    sys.path.insert(0, str(script.parent))
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[script.stem] = module
    spec.loader.exec_module(module)
    for name, test in list(vars(module).items()):
        if not name.startswith("test_"):
            continue
        own = folder / name
        own.mkdir()
        os.chdir(own)
        line = {"test": name, "failure": ""}
        try:
            made = test()
            if inspect.iscoroutine(made):
                asyncio.run(_within(made))
        except BaseException:  # any failure is told, and the next test runs
            line["failure"] = traceback.format_exc()
        print(json.dumps(line), flush=True)


main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
