"""Which ids of an agent elsewhere are remembered."""

from __future__ import annotations

from dragoman.relay.known_ids import KnownIds


def test_the_oldest_ids_are_forgotten() -> None:
    known = KnownIds(most=20)
    for number in range(100):
        known.put(f"ours-{number}", f"theirs-{number}")
        newest = range(max(0, number - 17), number + 1)
        assert [known.get(f"ours-{each}") for each in newest] == [
            f"theirs-{each}" for each in newest
        ]
        assert sum(bool(known.get(f"ours-{each}")) for each in range(100)) <= 20
    assert not known.get("ours-0")
