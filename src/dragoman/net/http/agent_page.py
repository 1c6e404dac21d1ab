"""The page that a browser shows at the address of an agent: what it can do, and how to call it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from dragoman.core.card import Card, CardSkill
from dragoman.core.model import Json
from dragoman.core.shown_text import limit_marks, remove_controls, remove_hidden

from .mount_point import as_folder

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;
color:#1c2430;background:#fff;overflow-wrap:anywhere}
h1{margin-bottom:0}h2{margin-top:2rem;font-size:1.1rem}
pre{background:#f3f5f8;padding:.8rem;white-space:break-spaces;border-radius:.4rem;font-size:.85rem}
dt{font-weight:600}dd{margin:0 0 .8rem}small,.dim{color:#5b6573}a{color:#0b62c4}
@media(prefers-color-scheme:dark){body{color:#e4e8ee;background:#14181d}pre{background:#20262e}
small,.dim{color:#9aa5b4}a{color:#6fb1ff}}
"""
_paragraph = re.compile("[\x1c-\x1e\x85\u2028\u2029]")


def agent_page(card: Card, url: str) -> bytes:
    """Returns the page of an agent at this address. Everything on the card is text for it."""
    base, url = url.rstrip("/"), as_folder(url)
    examples = (_argument(one) for skill in card.skills for one in skill.examples)
    # An example such as `--file=PATH` would send a file of whoever copies the command.
    example = next((one for one in examples if one and not one.startswith("-")), "hello")
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": example}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    body = shlex.quote(json.dumps(call, ensure_ascii=False))
    address, root, text = map(shlex.quote, (url, f"{base}/", example))
    ways = (
        (
            "From a terminal",
            f"dragoman send {address} {text}\ndragoman chat {address}",
        ),
        (
            "From Python",
            f"from dragoman import connect\n\nasync with connect({url!r}) as agent:\n"
            f"    task = await agent.send({example!r})\n    print(task.text)",
        ),
        (
            "With any client of A2A 1.0",
            f"curl {root} -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' \\\n"
            f"  -d {body}",
        ),
    )
    by = f" by {_isolated(card.provider.organization)}" if card.provider is not None else ""
    links = [(f"{base}/.well-known/agent-card.json", "its card")]
    if card.documentation_url.startswith(("https://", "http://")):
        links.append((card.documentation_url, "its documentation"))
    return "".join(
        (
            _head(card.name),
            f"<small>version {_isolated(card.version)}{by}, an agent that speaks A2A</small>",
            f"<p dir=auto>{_readable(card.description)}</p>",
            "<h2>What it can do</h2><dl>",
            *map(_skill, card.skills),
            "</dl><h2>How to call it</h2>",
            *(f"<p>{title}:</p><pre>{escape(text)}</pre>" for title, text in ways),
            "<p>See ",
            " and ".join(f"<a href='{escape(to)}'>{what}</a>" for to, what in links),
            ".</p></html>\n",
        )
    ).encode("utf-8", "replace")


def agents_page(agents: Sequence[Mapping[str, Json]], more: str) -> bytes:
    """Returns the page of a server with several agents. `more` is the token of the next page."""
    link = f"<p><a href='/agents?pageToken={quote(more)}'>more</a></p>" if more else ""
    listed = (
        f"<dt><a href='{escape(each['url'])}'>{_isolated(each['title'])}</a></dt>"
        f"<dd dir=auto>{_readable(each['description'])}</dd>"
        for each in agents
    )
    return f"{_head('Agents')}<dl>{''.join(listed)}</dl>{link}</html>\n".encode("utf-8", "replace")


def _head(title: str) -> str:
    shown = _readable(title)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'>"
        f"<title>{shown}</title><style>{_STYLE}</style><h1 dir=auto>{shown}</h1>"
    )


def _skill(skill: CardSkill) -> str:
    examples = "".join(f"<div class=dim>“{_isolated(one)}”</div>" for one in skill.examples[:3])
    name = _isolated(skill.name)
    if skill.name != skill.id:
        name += f" <small>{_isolated(skill.id)}</small>"
    return f"<dt>{name}</dt><dd><div dir=auto>{_readable(skill.description)}</div>{examples}</dd>"


def _isolated(text: str) -> str:
    """Returns a text of the card for the middle of a line. Its direction does not reach beyond
    it."""
    return f"<bdi>{_readable(text)}</bdi>"


def _readable(text: str) -> str:
    """Returns a text of the card as HTML that shows it in its order and inside its lines."""
    # An isolate of HTML ends with a paragraph inside it, and with a U+2069 that nothing opened.
    return escape(limit_marks(remove_controls(_paragraph.sub("\n", text))))


def _argument(example: str) -> str:
    """Returns an example as it stands in a command: one line, of which every character is seen."""
    line = limit_marks(remove_hidden(" ".join(example.split())))
    return "".join(filter(str.isprintable, line))
