"""Finds agents by what stands on their cards, without looking at each of them.

For every skill, tag, mode and word there is a list of the agents that have it, in the order of
their names. A page of a search walks the shortest of the lists that it needs, from where the page
before ended, and stops when it is full: the number of agents hardly matters to it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import Struct

from dragoman.core.card import Card

MOST_WORDS = 64
"""How many words that begin alike one word of a search stands for."""
MOST_ASKED = 8
"""How many words of a search count."""
_WORD = re.compile(r"\w+")


class Search(Struct, frozen=True, kw_only=True):
    """What agents are looked for. What is empty does not matter."""

    skill: str = ""
    tag: str = ""
    mode: str = ""
    text: str = ""
    """Words, or beginnings of words, all of which the card has."""


Facet = tuple[str, str]
"""A kind (`skill`, `tag`, `mode`, `word`) and a value."""


class AgentIndex:
    """The agents of a server by what they offer."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._facets: dict[str, frozenset[Facet]] = {}
        self._with: dict[Facet, list[str]] = {}
        self._words: list[str] = []

    def __len__(self) -> int:
        return len(self._names)

    def put(self, name: str, card: Card, tags: Iterable[str] = ()) -> None:
        """Adds an agent, or what has changed about it. `tags` are those beside its skills'."""
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
        """Returns the names of the agents that match, in their order, from behind a name."""
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
        # The fewest candidates first; each is then asked for the other facets.
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
