"""Examines three agents and writes what was found into `docs/doctor.md`.

`python tests/doctor/publish.py` runs everything anew and keeps the findings under `results/`; the
tests compare the page with what is kept, and what is kept with the agents.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))

from cli.run import dragoman as command  # noqa: E402
from cli.run import serving  # noqa: E402
from doctor.faulty import FAULTS  # noqa: E402
from doctor.proxy import standing_before  # noqa: E402
from doctor.servers import peer_server  # noqa: E402
from dragoman.doctor import Level, Orders, Report, examine  # noqa: E402
from dragoman.doctor.check import GROUPS, in_order  # noqa: E402
from interop.peers import A2A_SDK, A2A_SDK_0_3  # noqa: E402

PAGE = ROOT / "docs" / "doctor.md"
RESULTS = HERE / "results"
AGENT = HERE / "agent.py"
TEXTS = {"text": "one two three", "slow_text": "slow go", "ask_text": "ask"}
Findings = dict[str, Any]


@contextmanager
def own(folder: Path) -> Iterator[str]:
    """Our own server."""
    with serving(str(AGENT), "--store", "memory:", "--grpc-port", "0", cwd=folder) as served:
        yield served.url


def patients(folder: Path) -> dict[str, Callable[[], Any]]:
    """Who is examined: a name, and how to start it."""
    return {
        "dragoman": lambda: own(folder),
        "a2a-sdk-1.3.0": lambda: peer_server(A2A_SDK, folder / "new.log"),
        "a2a-sdk-0.3.26": lambda: peer_server(A2A_SDK_0_3, folder / "old.log"),
    }


def examined(url: str) -> Report:
    """The whole examination, and 0.1 if the agent is ours."""
    return examine(url, Orders(**TEXTS, timeout=60.0))


def findings(report: Report) -> Findings:
    """What is the same in every run."""
    return {
        "agent": report.agent,
        "interfaces": list(report.interfaces),
        "score": report.score(),
        "results": [
            {"on": r.on, "id": r.id, "outcome": r.outcome, "why": steady(r.why)}
            for r in report.results
        ],
    }


def steady(text: str) -> str:
    """Without what differs from run to run."""
    text = re.sub(r"\b[0-9a-f]{8}-[0-9a-f-]{3,27}", "ID", text)  # a line may end within one
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8420", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"(\d+)\d\d requests", r"\g<1>00 requests", text)  # how often it polls varies
    return re.sub(r'"[ds]-\d+"', '"d-1"', text)


def kept() -> dict[str, Findings]:
    """What was found when this was last run."""
    names = ("dragoman", "a2a-sdk-1.3.0", "a2a-sdk-0.3.26")
    return {name: json.loads((RESULTS / f"{name}.json").read_text("utf-8")) for name in names}


# The parts of the page


def checks_table() -> str:
    """All checks."""
    lines = []
    for group, what in GROUPS.items():
        lines += [f"**{what[0].upper()}{what[1:]}**", ""]
        lines += ["| check | level | where | says | spec |", "|---|---|---|---|---|"]
        for check in in_order():
            if check.group == group:
                places = "once" if check.once else ", ".join(sorted(check.bindings))
                versions = "" if check.once else f" {', '.join(sorted(check.versions))}"
                lines.append(
                    f"| `{check.id}` | {check.level.value} | {places}{versions} "
                    f"| {check.says} | {check.spec} |"
                )
        lines.append("")
    return "\n".join(lines).rstrip()


def scores_table() -> str:
    """The scores of all three."""
    found = kept()
    lines = ["| | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]

    def row(title: str, pick: Callable[[Findings], dict[str, Any] | None]) -> str:
        cells = []
        for one in found.values():
            count = pick(one["score"])
            if count is None:
                cells.append("")
                continue
            told = count["passed"] + count["failed"] + count["warned"]
            cells.append(f"{count['percent']:g} % ({count['passed']} of {told})")
        return f"| {title} | " + " | ".join(cells) + " |"

    lines.append(row("**all**", lambda score: score["total"]))
    lines += [row(level.value, lambda s, n=level.value: s["levels"][n]) for level in Level]
    places = list(dict.fromkeys(p for one in found.values() for p in one["score"]["interfaces"]))
    lines += [row(place, lambda s, p=place: s["interfaces"].get(p)) for place in places]
    return "\n".join(lines)


def reds_table(name: str) -> str:
    """Everything that was not as it should be, once for each check."""
    rows: dict[tuple[str, str], list[str]] = {}
    for result in kept()[name]["results"]:
        if result["outcome"] in ("fail", "warning"):
            why = result["why"].replace("|", "\\|").replace("<", "&lt;")
            why = why if len(why) < 160 else f"{why[:160]}..."
            rows.setdefault((result["id"], why), []).append(result["on"])
    if not rows:
        return "Nothing."
    levels = {check.id: check.level.value for check in in_order()}
    lines = ["| check | level | on | found |", "|---|---|---|---|"]
    for (id, why), places in rows.items():
        lines.append(f"| `{id}` | {levels[id]} | {', '.join(places)} | {why} |")
    return "\n".join(lines)


def session(folder: Path) -> str:
    """What a terminal shows: a sound agent, and one with a fault."""
    with own(folder) as url:
        sound = command("doctor", url, "--slow-text", "slow go", cwd=folder)
        with standing_before(int(url.rpartition(":")[2])) as proxy:
            proxy.fault = FAULTS["does not wait"]
            only = ("--only", "send.*", "--on", "jsonrpc-1.0")
            faulty = command("doctor", proxy.url, *only, cwd=folder)
    assert (sound.returncode, faulty.returncode) == (0, 1), sound.stderr + faulty.stderr
    lines = ["```text", '$ dragoman doctor http://127.0.0.1:8420 --slow-text "slow go"']
    lines += [steady(line).rstrip() for line in sound.stdout.splitlines()]
    lines += ["", "$ dragoman doctor http://127.0.0.1:8420 --only 'send.*' --on jsonrpc-1.0"]
    lines += [steady(line).rstrip() for line in faulty.stdout.splitlines()]
    return "\n".join((*lines, "```"))


def parts() -> dict[str, Callable[[], str]]:
    """What stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`, the session apart."""
    return {
        "checks": checks_table,
        "scores": scores_table,
        "new-sdk": lambda: reds_table("a2a-sdk-1.3.0"),
        "old-sdk": lambda: reds_table("a2a-sdk-0.3.26"),
    }


def filled(text: str, made: dict[str, Callable[[], str]]) -> str:
    """The page with these parts as they are now."""
    for name, make in made.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{make()}\n{end}{rest.partition(end)[2]}"
    return text


def main() -> None:
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for agent, start in patients(folder).items():
            if sys.argv[1:] in ([], [agent]):
                with start() as url:
                    found = findings(examined(url))
                text = json.dumps(found, indent=1, ensure_ascii=False)
                (RESULTS / f"{agent}.json").write_text(text + "\n", "utf-8")
                print(agent, found["score"]["total"])
        everything = {**parts(), "session": lambda: session(folder)}
        PAGE.write_text(filled(PAGE.read_text("utf-8"), everything), "utf-8")


if __name__ == "__main__":
    main()
