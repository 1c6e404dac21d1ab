"""The findings of the doctor, and the formats of its report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal
from xml.etree import ElementTree

from msgspec import Struct, to_builtins

from .check import CHECKS, Check, Level

Outcome = Literal["pass", "fail", "warning", "skipped"]
MARKS: dict[Outcome, str] = {"pass": "ok", "fail": "FAIL", "warning": "warn", "skipped": "-"}


class CheckResult(Struct, frozen=True, kw_only=True):
    """The outcome of one check on one interface."""

    id: str
    on: str
    """The place of the check: `card`, or an interface such as `jsonrpc-1.0`."""
    outcome: Outcome
    why: str = ""
    """What is wrong, or why the check could not be decided."""
    sent: str = ""
    came: str = ""

    @property
    def check(self) -> Check:
        """Returns the check itself."""
        return CHECKS[self.id]


class Count(Struct, kw_only=True):
    """Counts the outcomes."""

    passed: int = 0
    failed: int = 0
    warned: int = 0
    skipped: int = 0

    @property
    def percent(self) -> float:
        """Returns the percentage of passed checks among those that could be decided, or 100 if none
        could."""
        told = self.passed + self.failed + self.warned
        return round(100 * self.passed / told, 1) if told else 100.0


_MEMBERS: dict[Outcome, str] = {
    "pass": "passed",
    "fail": "failed",
    "warning": "warned",
    "skipped": "skipped",
}


def counted(results: Iterable[CheckResult]) -> Count:
    """Counts the outcomes of these results."""
    count = Count()
    for result in results:
        member = _MEMBERS[result.outcome]
        setattr(count, member, getattr(count, member) + 1)
    return count


class Report(Struct, frozen=True, kw_only=True):
    """The report of an examination."""

    url: str
    agent: str
    interfaces: tuple[str, ...]
    left_out: tuple[str, ...]
    """The interfaces that the card declares and the doctor cannot examine."""
    locked: str = ""
    """That the agent asks for credentials, and how to pass them; empty if it asks for none."""
    requests: int
    seconds: float
    results: tuple[CheckResult, ...]

    @property
    def broken(self) -> bool:
        """Returns whether a MUST is broken."""
        return any(result.outcome == "fail" for result in self.results)

    @property
    def reached(self) -> bool:
        """Returns whether there was an agent to examine."""
        return bool(self.interfaces)

    @property
    def why_not(self) -> str:
        """Returns why no agent was reached."""
        failed = (result.why for result in self.results if result.outcome == "fail")
        return next(failed, "its card declares no interface that was asked for")

    def score(self) -> dict[str, Any]:
        """Returns the scores by level, by interface, and of all checks."""
        levels = {
            level.value: [r for r in self.results if r.check.level is level] for level in Level
        }
        places = {on: [r for r in self.results if r.on == on] for on in self.places}
        return {
            "total": _told(counted(self.results)),
            "levels": {name: _told(counted(found)) for name, found in levels.items()},
            "interfaces": {name: _told(counted(found)) for name, found in places.items()},
        }

    @property
    def places(self) -> list[str]:
        """Returns the places where checks were run, in order."""
        return list(dict.fromkeys(result.on for result in self.results))

    def as_json(self) -> dict[str, Any]:
        """Returns the report as JSON."""
        return {
            **{"url": self.url, "agent": self.agent, "interfaces": list(self.interfaces)},
            **{"leftOut": list(self.left_out), "requests": self.requests},
            **{"seconds": round(self.seconds, 3), "score": self.score()},
            "results": [
                {
                    **to_builtins(result),
                    **{"level": result.check.level.value, "group": result.check.group},
                    **{"says": result.check.says, "spec": result.check.spec},
                }
                for result in self.results
            ],
        }

    def as_junit(self) -> str:
        """Returns the report as JUnit XML: a suite for each interface. A warning is an output and
        not a failure."""
        root = ElementTree.Element("testsuites", name="dragoman doctor")
        for on in self.places:
            found = [result for result in self.results if result.on == on]
            count = counted(found)
            suite = ElementTree.SubElement(root, "testsuite", name=on, tests=str(len(found)))
            suite.set("failures", str(count.failed))
            suite.set("skipped", str(count.skipped))
            for result in found:
                one = ElementTree.SubElement(suite, "testcase", classname=on, name=result.id)
                if result.outcome == "fail":
                    said = ElementTree.SubElement(one, "failure", message=_clean(result.why))
                    said.text = _clean(evidence(result))
                elif result.outcome == "skipped":
                    ElementTree.SubElement(one, "skipped", message=_clean(result.why))
                elif result.outcome == "warning":
                    said = ElementTree.SubElement(one, "system-out")
                    said.text = _clean(f"warning: {result.why}\n{evidence(result)}")
        return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def evidence(result: CheckResult) -> str:
    """Returns the request and the response as text."""
    return f"sent: {result.sent}\ncame: {result.came}" if result.sent else ""


def _clean(text: str) -> str:
    """Returns a text without the control characters that XML cannot hold."""
    return "".join(char if char >= " " or char in "\n\t" else "?" for char in text)


def _told(count: Count) -> dict[str, Any]:
    return {**to_builtins(count), "percent": count.percent}
