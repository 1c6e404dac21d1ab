"""What our client passes with which server and binding: the table of `docs/interop-client.md`.

`python tests/interop/client/matrix.py` asks all of them and writes the page.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from dragoman.core.errors import CallError, UnknownMethod, Unsupported
from interop.client.operations import OPERATIONS, But, Operation, scene
from interop.client.servers import ROWS, Row, Started

PAGE = Path(__file__).parents[3] / "docs" / "interop-client.md"
CELL = 40.0
"""Seconds for one operation."""


class Known(NamedTuple):
    """How a server falls short in one cell, and how that shows."""

    shows: str
    why: str
    offered: bool = False
    """Whether it means to offer this, in another way than others."""


_NOTHING = Known("unknown exception", "its REST has the path and nothing behind it: HTTP 500")
_NO_NAME = Known("HTTP status 500", "it knows webhooks by no name of 1.0: HTTP 500")
_BYTES = Known(
    "==wYiFGA",
    "it reads the bytes of a file as base64 once, where a2a-sdk of 0.3 has them twice (see below)",
    offered=True,
)
_HOOKS = ("push set", "push get", "push list", "push delete", "webhook called")
KNOWN: dict[tuple[str, str, str], Known] = {
    ("a2a-sdk 0.3.26", "a2a-0.3-rest", "list"): _NOTHING,
    ("a2a-sdk 0.3.26", "a2a-0.3-rest", "push list"): _NOTHING,
    ("a2a-sdk 0.3.26", "a2a-0.3-rest", "push delete"): Known("405", "refused with HTTP 405"),
    ("@a2a-js/sdk 1.3.0", "a2a-0.3-rest", "list"): Known(
        "TaskPage(tasks=()", "it lists the tasks of a tenant of 1.0 called `v1`, which has none"
    ),
    ("@a2a-js/sdk 1.3.0", "a2a-0.3-rest", "files"): _BYTES,
    ("@a2a-js/sdk 1.3.0", "a2a-0.3-grpc", "files"): _BYTES,
    **{("fasta2a 2.1.1", "a2a-1.0", name): _NO_NAME for name in _HOOKS},
}
"""Cells that end in an error other than `Unsupported`, and only in this one."""


class Verdict(NamedTuple):
    """How one operation went."""

    ok: bool
    cannot: str = ""
    """How the server said that it has none of it."""
    differs: str = ""
    """Why it is done in a way that is not ours."""
    but: str = ""
    detail: str = ""

    @property
    def remark(self) -> str:
        """What is below the table."""
        return self.cannot or self.differs or self.but


Table = dict[Row, dict[str, Verdict]]


def ask(row: Row, url: str) -> dict[str, Verdict]:
    """How every operation goes."""
    return asyncio.run(_ask(row, url))


async def _ask(row: Row, url: str) -> dict[str, Verdict]:
    return {name: await _judge(row, name, do, url) for name, do in OPERATIONS.items()}


async def _judge(row: Row, name: str, do: Operation, url: str) -> Verdict:
    known = KNOWN.get((row.server.name, row.dialect, name))
    try:
        # Each has connections of its own: some servers close theirs behind an error.
        async with asyncio.timeout(CELL), scene(url, row.dialect) as given:
            found = await do(given)
    except (Unsupported, UnknownMethod) as exc:
        return Verdict(True, cannot=_refusal(exc))
    except Exception as exc:
        if known is None or known.shows not in str(exc):
            return Verdict(False, detail=traceback.format_exc())
        if known.offered:
            return Verdict(True, differs=known.why)
        return Verdict(True, cannot=known.why)
    if known is not None:
        return Verdict(False, detail=f"it passes; take it off `KNOWN`: {known.why}")
    return Verdict(True, but=found.remark if isinstance(found, But) else "")


def _refusal(exc: CallError) -> str:
    if "has no words for" in exc.message:
        return "the dialect has no words for it, so nothing was asked"
    code = f" ({exc.code})" if exc.code else ""
    return f"refused as {type(exc).__name__}{code}"


def shown(table: Table) -> str:
    """The part of the page that is made."""
    remarks: list[str] = []

    def cell(verdict: Verdict) -> str:
        if not verdict.ok:
            return "FAILS"
        if verdict.remark and verdict.remark not in remarks:
            remarks.append(verdict.remark)
        number = f"[{remarks.index(verdict.remark) + 1}]" if verdict.remark else ""
        word = "—" if verdict.cannot else "no" if verdict.differs else "yes"
        return f"{word} {number}".strip()

    lines = ["| server, version, binding | " + " | ".join(OPERATIONS) + " |"]
    lines.append("|---" * (len(OPERATIONS) + 1) + "|")
    for row, verdicts in table.items():
        cells = (cell(verdicts[name]) for name in OPERATIONS)
        lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
    notes = [f"{n}. {remark[0].upper()}{remark[1:]}." for n, remark in enumerate(remarks, 1)]
    return "\n".join((*lines, "", _count(table), "", *notes))


def _count(table: Table) -> str:
    cells = [verdicts[name] for verdicts in table.values() for name in OPERATIONS]
    failed = sum(not each.ok for each in cells)
    unable = sum(bool(each.cannot) for each in cells)
    differ = sum(bool(each.differs) for each in cells)
    passed = len(cells) - failed - unable - differ
    return (
        f"{len(cells)} cells: {passed} pass, {unable} the server does not offer, "
        f"{differ} it does in a way of its own that we do not follow, {failed} fail."
    )


def filled(page: str, table: Table) -> str:
    """The page with this table."""
    begin, end = "<!-- matrix:begin -->", "<!-- matrix:end -->"
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{shown(table)}\n{end}{rest.partition(end)[2]}"


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory() as folder:
        started = Started(Path(folder))
        try:
            rows = [row for row in ROWS if wanted in row.name]
            table = {row: ask(row, started[row.server].url) for row in rows}
        finally:
            started.stop()
    for row, verdicts in table.items():
        for name, verdict in verdicts.items():
            if not verdict.ok:
                print(f"{row.name}, {name}:\n{verdict.detail}", file=sys.stderr)
    if not wanted:
        PAGE.write_text(filled(PAGE.read_text("utf-8"), table), "utf-8")
    print(shown(table))


if __name__ == "__main__":
    main()
