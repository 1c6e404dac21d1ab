"""When a link is dialled again: the table of the source document, without a clock."""

from __future__ import annotations

import pytest

from dragoman.net.reconnect_policy import ReconnectPolicy
from dragoman.xiaoyi.session_routes import SessionRoutes


def pauses(policy: ReconnectPolicy, number: int) -> list[float | None]:
    return [policy.next_pause(0.0) for _ in range(number)]


def test_pauses_double_from_2_to_60_seconds_50_times() -> None:
    found = pauses(ReconnectPolicy(jitter=0), 51)
    assert found[:6] == [2, 4, 8, 16, 32, 60]
    assert found[6:50] == [60] * 44
    assert found[50] is None


def test_a_link_that_held_for_10_seconds_begins_again() -> None:
    policy = ReconnectPolicy(jitter=0)
    pauses(policy, 49)
    assert policy.next_pause(9.9) == 60
    assert policy.next_pause(9.9) is None
    assert policy.next_pause(10.0) == 2
    assert policy.next_pause(0.0) == 4


@pytest.mark.parametrize("drawn", [0.0, 0.5, 1.0])
def test_jitter_only_shortens_a_pause(drawn: float) -> None:
    policy = ReconnectPolicy(drawn=lambda: drawn)
    assert policy.next_pause(0.0) == pytest.approx(2 * (1 - 0.1 * drawn))


def test_a_session_is_routed_to_its_link_or_to_another_and_forgotten_when_it_is_cleared() -> None:
    routes = SessionRoutes(most=2)
    routes.record("s1", "a")
    assert routes.find("s1", ["b", "a"]) == "a"
    assert routes.find("s1", ["b"]) == "b"
    assert routes.find("s1", []) is None
    routes.drop("s1")
    assert "s1" not in routes
    assert routes.find("s1", ["b", "a"]) == "b"
    for session in ("s1", "s2", "s3"):
        routes.record(session, "a")
    assert "s1" not in routes


def test_a_link_that_is_never_given_up_is_dialled_at_the_longest_pause_for_ever() -> None:
    found = pauses(ReconnectPolicy(first=0.5, tries=None, jitter=0), 100)
    assert found[:4] == [0.5, 1.0, 2.0, 4.0]
    assert found[-1] == 60.0
