"""The page that a browser shows at the address of an agent: what it can do, and how to call it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from dragoman.core.card import Card, CardSkill
from dragoman.core.model import Json

from .mount_point import as_folder

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;
color:#1c2430;background:#fff}
h1{margin-bottom:0}h2{margin-top:2rem;font-size:1.1rem}
pre{background:#f3f5f8;padding:.8rem;overflow-x:auto;border-radius:.4rem;font-size:.85rem}
dt{font-weight:600}dd{margin:0 0 .8rem}small,.dim{color:#5b6573}a{color:#0b62c4}
@media(prefers-color-scheme:dark){body{color:#e4e8ee;background:#14181d}pre{background:#20262e}
small,.dim{color:#9aa5b4}a{color:#6fb1ff}}
"""


def agent_page(card: Card, url: str) -> bytes:
    """Returns the page of an agent at this address. Everything on the card is text for it."""
    base, url = url.rstrip("/"), as_folder(url)
    example = next((one for skill in card.skills for one in skill.examples), "hello")
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": example}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    body = shlex.quote(json.dumps(call, ensure_ascii=False))
    # With an example of several lines, each is a line of a shell or of Python all the same.
    ways = (
        ("From a terminal", f"dragoman send {url} {shlex.quote(example)}\ndragoman chat {url}"),
        (
            "From Python",
            f"from dragoman import connect\n\nasync with connect({url!r}) as agent:\n"
            f"    task = await agent.send({example!r})\n    print(task.text)",
        ),
        (
            "With any client of A2A 1.0",
            f"curl {base}/ -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' \\\n"
            f"  -d {body}",
        ),
    )
    by = f" by {escape(card.provider.organization)}" if card.provider is not None else ""
    links = [(f"{base}/.well-known/agent-card.json", "its card")]
    if card.documentation_url.startswith(("https://", "http://")):
        links.append((card.documentation_url, "its documentation"))
    return "".join(
        (
            _head(card.name),
            f"<small>version {escape(card.version)}{by}, an agent that speaks A2A</small>",
            f"<p>{escape(card.description)}</p>",
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
        f"<dt><a href='{escape(each['url'])}'>{escape(each['title'])}</a></dt>"
        f"<dd>{escape(each['description'])}</dd>"
        for each in agents
    )
    return f"{_head('Agents')}<dl>{''.join(listed)}</dl>{link}</html>\n".encode("utf-8", "replace")


def _head(title: str) -> str:
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>"
    )


def _skill(skill: CardSkill) -> str:
    examples = "".join(f"<br><span class=dim>“{escape(one)}”</span>" for one in skill.examples[:3])
    name = escape(skill.name)
    if skill.name != skill.id:
        name += f" <small>{escape(skill.id)}</small>"
    return f"<dt>{name}</dt><dd>{escape(skill.description)}{examples}</dd>"
