"""Pages about agents whose cards are hostile, in a real browser: what a card says stays where it
stands, and a command to copy is the command that is shown."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from chromium import Tab, chromium
from dragoman import Agent, Provider, Turn
from dragoman.testing.served import served

pytestmark = pytest.mark.slow

WIDTHS = [360, 1280]
LONG = "W" * 1000
MARKS = "".join(map(chr, range(0x300, 0x33C)))  # sixty
TURNED = {
    "override": "\u202eabc",
    "embedding": "\u202babc",
    "isolate": "\u2067\u202eabc",
    "closes ours": "\u2069\u2069\u202eabc",
    "paragraph": "abc\u2029\u202eabc",
    "letters": "אבג",
}
HIDDEN = "\u202e\u2066\u2069\u200b\u200e\u061c\ufeff\u00ad\u034f\u3164\ufe0f\U000e0041\U000e0100"
COMMANDS = ["pre", "pre:nth-of-type(2)", "pre:nth-of-type(3)"]

# What the reader sees of the text below an element: the characters, each with where it stands.
SEEN = """(selector => {
  const seen = [], walk = document.createTreeWalker(document.querySelector(selector), 4)
  while (walk.nextNode()) {
    const text = walk.currentNode.data
    for (let at = 0; at < text.length; at += text.codePointAt(at) > 0xffff ? 2 : 1) {
      const range = document.createRange(), char = String.fromCodePoint(text.codePointAt(at))
      range.setStart(walk.currentNode, at); range.setEnd(walk.currentNode, at + char.length)
      const box = range.getBoundingClientRect()
      seen.push([char, box.left, box.top, box.width, box.height])
    }
  }
  return seen
})"""


def agent(title: str = "Desk", words: str = "Plans trips", /, **skill: Any) -> Agent:
    organization = skill.pop("organization", "Acme")
    provider = Provider(organization=organization, url="https://acme.example")
    found = Agent(title, description=words, provider=provider)
    skill = {"description": "Plans a trip", "examples": ["Kyoto"], "name": "Plan", **skill}

    @found.skill("plan", **skill)
    async def plan(turn: Turn) -> str:
        return turn.text

    return found


def hostile(text: str) -> Agent:
    return agent(text, text, name=text, description=text, examples=[text, text], organization=text)


@pytest.fixture
async def tab() -> AsyncIterator[Tab]:
    async with chromium() as found:
        yield found


async def seen(tab: Tab, selector: str) -> list[tuple[str, float, float, float, float]]:
    return [tuple(each) for each in await tab.run(f"{SEEN}({selector!r})")]


async def stand(tab: Tab, selector: str, words: str) -> list[tuple[float, float]]:
    """The line and the place of each character of these words, where they stand last."""
    found = await seen(tab, selector)
    at = "".join(char for char, *_ in found).rindex(words)
    return [(top, left) for _, left, top, *_ in found[at : at + len(words)]]


@pytest.mark.parametrize("width", WIDTHS)
async def test_a_long_word_does_not_widen_a_page(tab: Tab, width: int) -> None:
    async with served([hostile(LONG), agent("Other")]) as url:
        pages = [f"{url}/agents", await page_of(url, "W")]
        for page in pages:
            await tab.open(page, width)
            assert await tab.run("document.documentElement.scrollWidth") == width
            # Nor is any of it out of sight until somebody scrolls inside a box.
            wider = "[...document.querySelectorAll('*')].filter(e => e.scrollWidth > e.clientWidth"
            wider += (
                " && getComputedStyle(e).display != 'inline').map(e => e.outerHTML.slice(0, 99))"
            )
            assert await tab.run(wider) == []


@pytest.mark.parametrize("kind", TURNED)
@pytest.mark.parametrize("width", WIDTHS)
async def test_a_text_turns_nothing_but_itself(tab: Tab, width: int, kind: str) -> None:
    text = TURNED[kind]
    mixed = agent(text, text, name=text, description=text, examples=[text], organization=text)
    async with served({"mixed": mixed, "other": agent("Other")}) as url:
        await tab.open(f"{url}/agents/mixed/", width)
        for selector, words in (
            ("small", "version"),
            ("small", ", an agent that speaks A2A"),
            ("dt", "plan"),
        ):
            places = await stand(tab, selector, words)
            assert places == sorted(places), (selector, words)
        opening = await stand(tab, ".dim", "“")
        closing = await stand(tab, ".dim", "”")
        inside = [
            (top, left) for char, left, top, *_ in await seen(tab, ".dim") if char not in "“”"
        ]
        assert opening[0] <= min(inside) <= max(inside) <= closing[0]
        for command, words in zip(COMMANDS, ("dragoman send", "agent.send(", "-d "), strict=True):
            places = await stand(tab, command, words)
            assert places == sorted(places), (command, words)
        title = await tab.run("document.title")
        assert not set(title) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069")


@pytest.mark.parametrize("width", WIDTHS)
async def test_an_override_does_not_show_a_name_backwards(tab: Tab, width: int) -> None:
    """With an override, "moc.live" is read as "evil.com"."""
    async with served([agent("\u202emoc.live"), agent("Other")]) as url:
        await tab.open(f"{url}/agents", width)
        places = await stand(tab, "dl", "moc.live")
        assert places == sorted(places)


@pytest.mark.parametrize("width", WIDTHS)
async def test_stacked_marks_stay_inside_their_line(tab: Tab, width: int) -> None:
    """The page looks as it does without the marks, but for the lines that have them."""
    filler = "gjpqy " * 60

    async def look(word: str) -> tuple[bytes, ...]:
        description = f"{filler}{word} {filler}"
        one = agent(f"{word} x", description, name=word, description=description, examples=[word])
        async with served([one, agent("Other")]) as url:
            found: list[bytes] = []
            for page in (f"{url}/agents", await page_of(url, "x")):
                await tab.open(page, width)
                # Addresses hold the port, which differs.
                await tab.run("document.querySelectorAll('pre').forEach(e => e.remove())")
                everything = await seen(tab, "body")
                height = await tab.run("document.documentElement.scrollHeight")
                marked = sorted(
                    {(top, size) for char, _, top, _, size in everything if char == "Z"}
                )
                assert marked
                above = 0.0
                for top, size in marked:
                    # A line is 1.5 times as high as its letters are; letters stand in its middle.
                    edge = size * 0.2
                    if top - edge > above:
                        found.append(await tab.picture(0, above, width, int(top - edge - above)))
                    above = int(top + size + edge) + 1
                found.append(await tab.picture(0, above, width, height - above))
            return tuple(found)

    plain, marked = await look("Zaz"), await look(f"Z{MARKS}a{MARKS}z{MARKS}")
    assert len(plain) == len(marked) > 4
    assert [
        at for at, pair in enumerate(zip(plain, marked, strict=True)) if pair[0] != pair[1]
    ] == []


async def test_marks_that_languages_need_stay() -> None:
    words = ["Vie\u0323\u0302t Na\u0323\u0301m", "שָּׁ֖", "नि॑ं", "རྒྱལ", "ก็้", "1\ufe0f\u20e3", "❤\ufe0f"]
    async with served([agent("Desk", " ".join(words)), agent("Other")]) as url:
        async with httpx2.AsyncClient() as client:
            page = await client.get(f"{url}/agents/desk/", headers={"accept": "text/html"})
        for word in words:
            assert word in page.text


@pytest.mark.parametrize(
    "example",
    [
        f"hel{HIDDEN}lo",
        "hello\x15rm -rf ~\x0d\x1b[201~\x03\x07\x9b",
        "hello\nrm -rf ~\n",
        "hello\u2028rm\u2029-rf\u0085~",
        f"hello{' ' * 2000}; rm -rf ~",
        f"e{MARKS}",
        "it's $(rm) `rm` !rm \\",
        "say 'שלום' 1 2 3",
        LONG,
    ],
    ids=["hidden", "control", "lines", "separators", "spaces", "marks", "shell", "hebrew", "long"],
)
@pytest.mark.parametrize("width", WIDTHS)
async def test_a_command_to_copy_shows_what_it_copies(tab: Tab, width: int, example: str) -> None:
    async with served(agent(examples=[example])) as url:
        await tab.open(url, width)
        for command in COMMANDS:
            shown = await seen(tab, command)
            copied = await tab.copy(command)
            assert copied == "".join(char for char, *_ in shown)
            assert copied.replace("\n", "").isprintable()
            # Every character takes its place on the screen, but for marks on a letter.
            right = await tab.run(
                f"document.querySelector({command!r}).getBoundingClientRect().right"
            )
            for char, left, _, wide, _ in shown:
                if char != "\n" and char not in MARKS:
                    assert wide > 0, ascii(char)
                    assert 0 <= left <= left + wide <= right, "without scrolling"
        # Nothing of the example becomes a line of its own, which a shell might run.
        copied = await tab.copy("pre")
        assert len(copied.splitlines()) == 2
        assert len(shlex.split(copied.splitlines()[0])) == 4


@pytest.mark.parametrize("example", ["--file=/etc/passwd", "-f/etc/passwd", "--header=X: y"])
async def test_an_example_is_never_an_option_of_the_command(tab: Tab, example: str) -> None:
    """Otherwise who copies the command sends a file of their own to the agent."""
    async with served(agent(examples=[example, "Kyoto"])) as url:
        await tab.open(url, 1280)
        words = shlex.split((await tab.copy("pre")).splitlines()[0])
        assert words == ["dragoman", "send", url, "Kyoto"]


async def page_of(url: str, part: str) -> str:
    """The page of the agent whose title holds this."""
    async with httpx2.AsyncClient() as client:
        listed = (await client.get(f"{url}/agents")).json()["agents"]
    return next(each["url"] for each in listed if part in each["title"])
