"""Finds agents by the content of their cards, without examining each agent.

For every skill, tag, mode and word there is a list of the agents that have it, in the order of
their names. A page of a search walks the shortest of the lists that it needs, from the end of the
previous page, and stops when the page is full. Its cost hardly depends on the number of agents.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import Struct

from dragoman.core.card import Card

MOST_WORDS = 64
"""The maximum number of known words that the beginning of a word in a search may match."""
MOST_ASKED = 8
"""The maximum number of words in a search; the rest are ignored."""
_WORD = re.compile(r"\w+")


class Search(Struct, frozen=True, kw_only=True):
    """The conditions of a search for agents. A field that is empty does not filter."""

    skill: str = ""
    tag: str = ""
    mode: str = ""
    text: str = ""
    """Words, or beginnings of words, all of which the card must contain."""


Facet = tuple[str, str]
"""A kind (`skill`, `tag`, `mode`, `word`) and a value."""


class AgentIndex:
    """The index of the agents of a server by what they offer."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._facets: dict[str, frozenset[Facet]] = {}
        self._with: dict[Facet, list[str]] = {}
        self._words: list[str] = []

    def __len__(self) -> int:
        return len(self._names)

    def put(self, name: str, card: Card, tags: Iterable[str] = ()) -> None:
        """Adds an agent, or updates it. `tags` are its tags beside those of its skills."""
        self.remove(name)
        facets = self._facets[name] = frozenset(_facets_of(name, card, tags))
        insort(self._names, name)
        for facet in facets:
            found = self._with.get(facet)
            if found is None:
                found = self._with[facet] = []
                if facet[0] == "word":
                    insort(self._words, facet[1])
            insort(found, name)

    def remove(self, name: str) -> None:
        """Removes an agent, if it is there."""
        facets = self._facets.pop(name, None)
        if facets is None:
            return
        _drop(self._names, name)
        for facet in facets:
            found = self._with[facet]
            _drop(found, name)
            if not found:
                del self._with[facet]
                if facet[0] == "word":
                    _drop(self._words, facet[1])

    def find(self, search: Search, after: str = "") -> Iterator[str]:
        """Yields the names of the matching agents in order, starting after the name `after`."""
        wanted: list[list[Facet]] = [
            [(kind, value)]
            for kind, value in (
                ("skill", search.skill),
                ("tag", search.tag.casefold()),
                ("mode", search.mode.casefold()),
            )
            if value
        ]
        words = _WORD.findall(search.text.casefold())[:MOST_ASKED]
        wanted += [[("word", each) for each in self._beginning(word)] for word in words]
        if not wanted:
            return iter(self._names[bisect_right(self._names, after) :])
        # The facet with the fewest candidates comes first; each candidate is then checked for the
        # other facets.
        wanted.sort(key=lambda any_of: sum(len(self._with.get(each, ())) for each in any_of))
        first, *others = wanted
        return (
            name
            for name in self._candidates(first, after)
            if all(not self._facets[name].isdisjoint(any_of) for any_of in others)
        )

    def _candidates(self, any_of: list[Facet], after: str) -> Iterator[str]:
        if len(any_of) == 1:
            found = self._with.get(any_of[0], [])
        else:
            found = sorted({name for facet in any_of for name in self._with.get(facet, ())})
        return islice(iter(found), bisect_right(found, after), None)

    def _beginning(self, word: str) -> list[str]:
        """Returns the known words that begin with this one."""
        start = bisect_left(self._words, word)
        found: list[str] = []
        for each in islice(self._words, start, start + MOST_WORDS):
            if not each.startswith(word):
                break
            found.append(each)
        return found or [word]


def _facets_of(name: str, card: Card, tags: Iterable[str]) -> Iterator[Facet]:
    texts = [name, card.name, card.description]
    for mode in (*card.input_modes, *card.output_modes):
        yield "mode", mode.casefold()
    for tag in tags:
        yield "tag", tag.casefold()
        texts.append(tag)
    for skill in card.skills:
        yield "skill", skill.id
        texts += [skill.id, skill.name, skill.description, *skill.tags]
        for tag in skill.tags:
            yield "tag", tag.casefold()
        for mode in (*skill.input_modes, *skill.output_modes):
            yield "mode", mode.casefold()
    for word in set(_WORD.findall(" ".join(texts).casefold())):
        yield "word", word


def _drop(found: list[str], value: str) -> None:
    del found[bisect_left(found, value)]
