"""`dragoman login`: authenticates the user to an agent with the scheme that its card requires."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import webbrowser
from datetime import UTC, datetime
from getpass import getpass
from typing import Annotated, Any, NoReturn

from cyclopts import Parameter

from dragoman.client.addresses import web_form
from dragoman.client.auth import CardAuth, StoredToken
from dragoman.client.auth.login import Login, Options
from dragoman.client.auth.origins import is_safe, shown
from dragoman.client.credentials import origin_of
from dragoman.core.errors import ConfigError, DragomanError, PeerUnreachable

from ..session_options import completed
from .card_show import card_at

REFUSED, NOBODY = 1, 3
"""Exit codes; 2 is a mistake in the command itself, as everywhere."""


def login(
    url: Annotated[str, Parameter(help="Address of the agent, or of its card.")] = "",
    /,
    *,
    scheme: Annotated[
        str, Parameter(help="Scheme of the card. [default: the first one required]")
    ] = "",
    device: Annotated[bool, Parameter(help="Enter a code on another device instead.")] = False,
    client_id: Annotated[
        str, Parameter(help="The OAuth client id that the authorization server has registered.")
    ] = "",
    scope: Annotated[
        tuple[str, ...], Parameter(help="Request this scope instead of the card's; repeatable.")
    ] = (),
    port: Annotated[int, Parameter(help="Port to which the browser returns. [default: any]")] = 0,
    browser: Annotated[
        bool, Parameter(help="Open a browser.", negative="--no-browser", show_default=False)
    ] = True,
    listed: Annotated[
        bool, Parameter(name="--list", help="List the agents that you are logged in to.")
    ] = False,
    forget: Annotated[bool, Parameter(help="Log out: delete the stored tokens.")] = False,
    as_json: Annotated[bool, Parameter(name=("--json", "-j"), help="Print JSON.")] = False,
) -> None:
    """Log in to an agent once; other commands then use the saved tokens.

    Exit code 0: done; 1: the login was refused or nobody finished it; 2: the command is wrong;
    3: the agent or its authorization server cannot be reached.
    """
    auth = CardAuth.of(os.environ)
    if listed:
        _show([_about(kept) for kept in auth.tokens.all()], as_json, "You are logged in nowhere.")
        return
    if not url:
        raise ConfigError("Where? Give the address of an agent, or --list.")
    url = web_form(completed(url))
    origin = origin_of(url)
    if forget:
        count = auth.tokens.drop(origin)
        said = f"Logged out of {shown(origin)}." if count else f"{shown(origin)} was not known."
        print(json.dumps({"origin": shown(origin), "forgotten": count}) if as_json else said)
        return
    options = Options(
        scheme=scheme,
        flow="deviceCode" if device else "",
        client_id=client_id,
        scopes=scope,
        port=port,
    )
    try:
        kept = asyncio.run(_log_in(auth, url, origin, options, _Terminal(browser=browser)))
    except ConfigError:
        raise
    except DragomanError as exc:
        _end(exc, as_json)
    _show([_about(one) for one in kept], as_json, "There was nothing to keep.")


async def _log_in(
    auth: CardAuth, url: str, origin: str, options: Options, terminal: _Terminal
) -> list[StoredToken]:
    if not is_safe(url):
        raise ConfigError(f"{shown(origin)} is plain http; nothing secret is sent there.")
    async with auth:
        found = await card_at(url, auth)
        entrance = Login(auth, terminal, terminal.typed)
        return await entrance.log_in(origin, found.card, options)


class _Terminal:
    """The person at the terminal. Instructions go to standard error, so output stays clean."""

    def __init__(self, *, browser: bool) -> None:
        self._browser = browser

    def tell(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def open(self, url: str) -> bool:
        try:
            found = webbrowser.get() if self._browser else None
        except webbrowser.Error:
            found = None
        if found is None:
            return False
        # A browser in the terminal returns when it is closed, and must not delay us until then.
        threading.Thread(target=found.open, args=(url,), daemon=True).start()
        return True

    async def typed(self, label: str, secret: bool) -> str:
        return (await asyncio.to_thread(_read, f"{label}: ", secret)).strip()


def _read(prompt: str, secret: bool) -> str:
    if not sys.stdin.isatty():  # a script: one line for each question
        return sys.stdin.readline()
    if secret:
        return getpass(prompt)
    print(prompt, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()


def _about(kept: StoredToken) -> dict[str, Any]:
    """Returns what may be shown of a token: everything but the secret."""
    until = datetime.fromtimestamp(kept.until, UTC).isoformat() if kept.until else None
    return {
        "origin": shown(kept.origin),
        "scheme": kept.scheme,
        "kind": kept.kind,
        "scopes": list(kept.scopes),
        "until": until,
        "renewable": bool(kept.refresh),
    }


def _show(found: list[dict[str, Any]], as_json: bool, nothing: str) -> None:
    if as_json:
        print(json.dumps(found))
        return
    for one in found:
        until = f"until {one['until']}" if one["until"] else "until it is refused"
        how = ", renewed by itself" if one["renewable"] else ""
        scopes = f" ({' '.join(one['scopes'])})" if one["scopes"] else ""
        print(f"{one['origin']}  {one['scheme']}: {one['kind']}{scopes}, {until}{how}")
    if not found:
        print(nothing)


def _end(error: DragomanError, as_json: bool) -> NoReturn:
    if as_json:
        print(json.dumps({"error": error.reason, "message": error.message}))
    print("dragoman:", error.message, file=sys.stderr)
    sys.exit(NOBODY if isinstance(error, PeerUnreachable) else REFUSED)
