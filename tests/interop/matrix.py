"""Which client passes what, in which binding: the table of `docs/interop.md`.

`python tests/interop/matrix.py` asks all of them and writes the page.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from interop.peers import A2A_GO, A2A_JS, A2A_SDK, A2A_SDK_0_3, FASTA2A, PYTHON_A2A, Peer
from interop.serving import served

HERE = Path(__file__).parent
CLIENTS = HERE / "clients" / "matrix"
PAGE = HERE.parents[1] / "docs" / "interop.md"
TOKEN = "only-for-this-test-0123456789"
CONFIG = """
[server]
allow_private = true
[auth.robots]
type = "bearer"
callers.build = { secret = { env = "BUILD_TOKEN" } }
"""
OPERATIONS = {
    "send": "send",
    "stream": "stream",
    "get": "get",
    "list_tasks": "list",
    "cancel": "cancel",
    "resubscribe": "resubscribe",
    "push_set": "push set",
    "push_get": "push get",
    "push_list": "push list",
    "push_delete": "push delete",
    "webhook": "webhook called",
    "unknown_task": "unknown task",
    "extended_card": "extended card",
}
"""As a script names it, and as the page does."""
BINDINGS = {"JSONRPC": "JSON-RPC", "HTTP+JSON": "REST", "GRPC": "gRPC"}


class Row(NamedTuple):
    """One client in one version and binding."""

    peer: Peer
    script: str
    version: str
    binding: str

    @property
    def name(self) -> str:
        """In the first column."""
        client, _, number = self.peer.name.rpartition("-")
        return f"{client} {number}, A2A {self.version}, {BINDINGS[self.binding]}"


class Verdict(NamedTuple):
    """How one operation went."""

    ok: bool
    cannot: str = ""
    but: str = ""
    detail: str = ""

    @property
    def remark(self) -> str:
        """What is below the table."""
        return self.cannot or self.but


ROWS = [
    Row(peer, script, version, binding)
    for peer, script, versions, bindings in (
        (A2A_SDK, "a2a_sdk.py", ("1.0", "0.3"), BINDINGS),
        (A2A_SDK_0_3, "a2a_sdk_0_3.py", ("0.3",), BINDINGS),
        (A2A_JS, "a2a_js.mjs", ("1.0", "0.3"), BINDINGS),
        (A2A_GO, "operations", ("1.0", "0.3"), BINDINGS),
        (FASTA2A, "fasta2a_client.py", ("0.3 with shapes of 1.0",), ("JSONRPC",)),
        (PYTHON_A2A, "python_a2a_client.py", ("0.1",), ("JSONRPC",)),
    )
    for version in versions
    for binding in bindings
]
Table = dict[Row, dict[str, Verdict]]


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """The address of an agent that only lets in who has the token, and calls webhooks here."""
    with served(folder, HERE / "guarded.py", config=CONFIG, BUILD_TOKEN=TOKEN) as url:
        yield url


def ask(row: Row, url: str) -> dict[str, Verdict]:
    """What the client says of every operation. Raises `PeerUnavailable`."""
    args = (url, TOKEN, row.binding, row.version)
    if row.peer.sources is not None:
        return heard(row.peer.run(row.script, *args, timeout=500), OPERATIONS)
    done = row.peer.run(CLIENTS / row.script, str(CLIENTS), *args, timeout=500)
    return heard(done, OPERATIONS)


def heard(done: subprocess.CompletedProcess[str], operations: Iterable[str]) -> dict[str, Verdict]:
    """The verdicts that a client's script has printed."""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = {line.pop("scenario"): Verdict(**line) for line in lines}
    missing = Verdict(False, detail=f"the client never got to it:\n{done.stderr}")
    return {name: found.pop(name, missing) for name in operations} | found


def shown(table: Table) -> str:
    """The part of the page that is made."""
    rows = {row.name: verdicts for row, verdicts in table.items()}
    others = [
        f"{row.peer.name.rpartition('-')[0]} speaks JSON-RPC only: {more.cannot}."
        for row, verdicts in table.items()
        if (more := verdicts.get("other_bindings"))
    ]
    made = drawn("client, version, binding", OPERATIONS, rows, "the client cannot ask")
    return "\n".join((made, "", *others))


def drawn(
    head: str, operations: dict[str, str], rows: dict[str, dict[str, Verdict]], unable: str
) -> str:
    """A table of verdicts, how many of each there are, and the remarks; `unable` is what `—` is."""
    remarks: list[str] = []

    def cell(verdict: Verdict) -> str:
        if not verdict.ok:
            return "FAILS"
        if verdict.remark and verdict.remark not in remarks:
            remarks.append(verdict.remark)
        number = f"[{remarks.index(verdict.remark) + 1}]" if verdict.remark else ""
        return f"— {number}" if verdict.cannot else f"yes {number}".strip()

    lines = [f"| {head} | " + " | ".join(operations.values()) + " |"]
    lines.append("|---" * (len(operations) + 1) + "|")
    for name, verdicts in rows.items():
        cells = (cell(verdicts[operation]) for operation in operations)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    found = [verdicts[operation] for verdicts in rows.values() for operation in operations]
    failed = sum(not each.ok for each in found)
    without = sum(bool(each.cannot) for each in found)
    passed = len(found) - failed - without
    count = f"{len(found)} cells: {passed} pass, {without} {unable}, {failed} fail."
    notes = [f"{n}. {remark[0].upper()}{remark[1:]}." for n, remark in enumerate(remarks, 1)]
    return "\n".join((*lines, "", count, "", *notes)).rstrip()


def filled(page: str, made: str) -> str:
    """The page with what was made."""
    begin, end = "<!-- matrix:begin -->", "<!-- matrix:end -->"
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{made}\n{end}{rest.partition(end)[2]}"


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as url:
        table = {row: ask(row, url) for row in ROWS if wanted in row.name}
    for row, verdicts in table.items():
        for name, verdict in verdicts.items():
            if not verdict.ok:
                print(f"{row.name}, {name}:\n{verdict.detail}", file=sys.stderr)
    if not wanted:
        PAGE.write_text(filled(PAGE.read_text("utf-8"), shown(table)), "utf-8")
    print(shown(table))


if __name__ == "__main__":
    main()
