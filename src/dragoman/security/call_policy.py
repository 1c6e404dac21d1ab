"""Policies: what the operator of a server lets its callers do, whichever agent and dialect.

A policy is a function, and so are the rules of the settings. It is asked in `AuthorizingPeer`,
where the operations of every dialect arrive; without a policy nothing is asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from dragoman.core.errors import Forbidden
from dragoman.core.operations import NAMES, Operation, SendMessage, SetHook, name_of
from dragoman.core.peer import Context
from dragoman.settings import PolicyRule, Rates

from .rate_limits import Meter

Verdict = bool | None | Awaitable[bool | None]
CallPolicy = Callable[[Context, str, Operation[Any], str, str], Verdict]
"""`policy(caller, agent, operation, skill, task)` refuses a call with False, or by raising
`Forbidden`. The ids of skill and task are empty where there are none."""

_WEBHOOK = next(name for name, kind in NAMES.items() if kind is SetHook)


def policies_of(rules: Sequence[PolicyRule], policy: CallPolicy | None) -> tuple[CallPolicy, ...]:
    """Returns the policies of a server: the rules of its settings, and the one that it was given in
    code. Each may refuse a call."""
    return (*((RulePolicy(rules),) if rules else ()), *((policy,) if policy is not None else ()))


def meters_of(policies: Sequence[CallPolicy]) -> list[Meter]:
    """Returns the meters of the rules that limit how often callers call."""
    return [m for each in policies if isinstance(each, RulePolicy) for m in each.meters]


async def decided(verdict: object) -> None:
    """Raises `Forbidden` for the verdict False of a function, which may be async."""
    if inspect.isawaitable(verdict):
        verdict = await verdict
    if verdict is False:
        raise Forbidden()


async def permits(
    policies: Sequence[CallPolicy],
    caller: Context,
    agent: str,
    operation: Operation[Any],
    skill: str,
) -> bool:
    """Returns whether a caller may open a task, before it is known which agent is asked for it."""
    try:
        for policy in policies:
            if isinstance(policy, RulePolicy):
                policy.check(caller, agent, operation, skill)
            else:
                await decided(policy(caller, agent, operation, skill, ""))
    except Forbidden:
        return False
    return True


class RulePolicy:
    """The `[[policy]]` rules of the settings. The first that fits decides."""

    def __init__(self, rules: Sequence[PolicyRule]) -> None:
        self._rules = [_Rule(each, f"policy {place}") for place, each in enumerate(rules)]

    def __call__(
        self, caller: Context, agent: str, operation: Operation[Any], skill: str, task: str
    ) -> Awaitable[None] | None:
        """Raises `Forbidden`, or `TooMany` if the caller has made as many calls as the rule
        allows; the latter perhaps when it is awaited."""
        rule = self._rule(caller, agent, operation, skill)
        return rule.meter.take(caller) if rule.meter is not None else None

    @property
    def meters(self) -> list[Meter]:
        """The meters of the rules that limit how often callers call."""
        return [rule.meter for rule in self._rules if rule.meter is not None]

    def check(self, caller: Context, agent: str, operation: Operation[Any], skill: str) -> None:
        """Raises `Forbidden` for a call that is not made yet, and so is not counted."""
        self._rule(caller, agent, operation, skill)

    def _rule(self, caller: Context, agent: str, operation: Operation[Any], skill: str) -> _Rule:
        rule = self._rule_for(caller, agent, name_of(operation), skill)
        if isinstance(operation, SendMessage) and operation.hook is not None:
            self._rule_for(caller, agent, _WEBHOOK, skill)  # a webhook that is set with a message
        return rule

    def _rule_for(self, caller: Context, agent: str, operation: str, skill: str) -> _Rule:
        asked = (caller.principal, caller.tenant, agent, skill, operation)
        for rule in self._rules:
            if rule.fits(asked):
                if rule.allow:
                    return rule
                break
        raise Forbidden("The policy of this server does not allow this.")


class _Rule:
    __slots__ = ("_names", "allow", "meter")

    def __init__(self, rule: PolicyRule, name: str) -> None:
        self.allow = rule.allow
        most = rule.calls_per_minute
        self.meter = Meter(Rates(calls_per_minute=most), kind=name) if most else None
        lists = (rule.callers, rule.tenants, rule.agents, rule.skills, rule.operations)
        self._names = [
            (place, _Names(each)) for place, each in enumerate(lists) if each is not None
        ]

    def fits(self, asked: Sequence[str]) -> bool:
        """Returns whether the rule is about a call: its caller, tenant, agent, skill and
        operation."""
        return all(names.fits(asked[place]) for place, names in self._names)


class _Names:
    __slots__ = ("_exact", "_starts")

    def __init__(self, names: Collection[str]) -> None:
        self._exact = frozenset(each for each in names if not each.endswith("*"))
        self._starts = tuple(each[:-1] for each in names if each.endswith("*"))

    def fits(self, name: str) -> bool:
        """Returns whether this is one of the names."""
        return name in self._exact or (bool(self._starts) and name.startswith(self._starts))
