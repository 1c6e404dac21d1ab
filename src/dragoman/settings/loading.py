"""Reads the settings from the flags, the environment and the file, in this order of precedence."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.core.errors import ConfigError

from .agent_credentials import AgentCredentials, TokenExchangeSettings
from .checks import check
from .policy_rule import check_rules, nearest
from .sections import (
    LOCAL,
    HostedAgent,
    Retention,
    Settings,
)

FILE = "dragoman.toml"
IAT_SECRET = "IAT_SECRET"  # noqa: S105  the name of a variable
"""The variable with the secret that hosts and agents share, if `[iat] secret` is not set."""
NAMED = frozenset(("agents", "auth", "channels", "mcp", "retention", "skills"))
"""Sections whose keys are names the operator chooses."""
OTHERS = frozenset(("DRAGOMAN_XIAOYI_AK", "DRAGOMAN_XIAOYI_SK"))
"""Variables that have the form of a setting, but hold keys that are never in the settings."""
RULES = "policy"
"""The section that is a list."""


def load(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """Returns the effective settings. `flags` are keys of `[server]`, and None means that a flag
    was not given. `signing_keys` is `[signing] keys`, `workspace` is `[workspace] root`, `cors`
    has the keys of `[cors]`, and `tracing` is `[tracing] enabled`.

    Raises `ConfigError` naming the file and line, the variable or the flag that is wrong.
    """
    if config is None:
        config = Path(FILE) if Path(FILE).is_file() else None
    sections = _from_file(config) if config is not None else {}
    for agent in sections.get("agents", {}).values():
        assert config is not None  # noqa: S101  only the file has such sections
        if "file" in agent:
            agent["file"] = str(config.parent / agent["file"])
    _check_names(environ or {}, _variables_in(sections))
    for section, keys in _from_environ(environ or {}).items():
        sections.setdefault(section, {}).update(keys)
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    if "signing_keys" in given:
        sections.setdefault("signing", {})["keys"] = given.pop("signing_keys")
    if "workspace" in given:
        sections.setdefault("workspace", {})["root"] = given.pop("workspace")
    if isinstance(cors := given.pop("cors", None), Mapping):
        sections.setdefault("cors", {}).update(cors)
    if "tracing" in given:
        sections.setdefault("tracing", {})["enabled"] = given.pop("tracing")
    if "iat_host" in given:
        sections.setdefault("iat", {})["host"] = given.pop("iat_host")
    if environ and environ.get(IAT_SECRET):
        sections.setdefault("iat", {}).setdefault("secret", {"env": IAT_SECRET})
    server = sections.setdefault("server", {})
    server.update(given)
    agents = sections.get("agents", {}).values()
    ported = any(isinstance(each, Mapping) and "grpc_port" in each for each in agents)
    if "grpc_port" in server or "grpc_url" in server or ported:
        server.setdefault("grpc", True)  # naming its address enables it
    settings = _converted(sections, "the settings")
    check(settings)
    return settings


def _from_file(path: Path) -> dict[str, dict[str, Any]]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"There is no file {path}; create it, or omit --config.") from None
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} cannot be read: {exc}") from None
    import tomllib  # many servers have no file

    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{path}: {exc}") from None
    known = _known()
    for section, keys in found.items():
        if section not in known:
            raise _unknown(path, text, section, "", f"section; known are: {', '.join(known)}")
        if section == RULES:
            check_rules(path, text, keys)
            continue
        if not isinstance(keys, dict):
            raise _unknown(path, text, section, "", "key here; it belongs in a [section]")
        for key in keys if section not in NAMED else ():
            if key not in known[section]:
                listed = ", ".join(known[section])
                raise _unknown(path, text, section, key, f"key in [{section}]; known are: {listed}")
    for section in NAMED & found.keys():
        for name, value in found[section].items():
            _check_named(path, text, section, name, value)
            if section == "agents":
                _check_agent(path, text, name, value)
    try:
        msgspec.convert(found, Settings)
    except msgspec.ValidationError as exc:
        where = re.search(r"\$\.(\w+)\.(\w+)", str(exc))
        line = _line(text, *where.groups()) if where else 1
        raise ConfigError(f"{path}:{line}: {exc}") from None
    audit = found.get("server", {}).get("audit")
    if audit and not Path(audit).parent.is_dir():
        line, folder = _line(text, "server", "audit"), Path(audit).parent
        raise ConfigError(f"{path}:{line}: audit: there is no folder {folder}; create it.")
    return found


def _check_named(path: Path, text: str, section: str, name: str, value: object) -> None:
    """Names the line of a wrong `[section.name]`, which msgspec calls `[...]`."""
    try:
        msgspec.convert({section: {name: value}}, Settings)
    except msgspec.ValidationError as exc:
        what, _, where = str(exc).partition(" - at ")
        inner = re.sub(r"^`\$\.\w+(\[\.\.\.\])?\.?|`$", "", where).replace("[...]", ".NAME")
        if inner.endswith(_SECRETS) and "got `str`" in what:
            what = 'a secret is never written here: give {env = "X"} or {file = "path"}'
        key = inner.partition(".")[0]
        if field := re.search(r"unknown field `([^`]*)`", what):
            key = key or field[1]
            what += _meant(section, inner, field[1])
        line = _line_of(text, section, name, key)
        place = f" (at {inner})" if inner else ""
        raise ConfigError(f"{path}:{line}: [{section}.{name}]: {what}{place}") from None


_SECRETS = ("secret", "token", "api_key", "password")
"""How the names of keys end that hold a reference to a secret."""
_KEYS: dict[tuple[str, str], type[Struct]] = {
    ("agents", ""): HostedAgent,
    ("agents", "auth"): AgentCredentials,
    ("agents", "auth.exchange"): TokenExchangeSettings,
    ("retention", ""): Retention,
}
"""What the keys of a section with names are, and those of a table inside of it."""


def _meant(section: str, inner: str, key: str) -> str:
    """Returns what to write instead of an unknown key, where that can be told."""
    found = _KEYS.get((section, inner))
    if found is None:
        return ""
    known = [each for each in found.__struct_fields__ if each != "places"]
    near = nearest(key, known)
    hint = f"did you mean `{near}`? " if near else ""
    return f"; {hint}known are: {', '.join(known)}"


def _check_agent(path: Path, text: str, name: str, value: dict[str, Any]) -> None:
    """Checks that a `[agents.NAME]` is one agent, and notes where its keys stand."""
    places = {key: f"{path}:{_line_of(text, 'agents', name, key)}" for key in ("", *value)}
    agent = msgspec.convert({**value, "places": places}, HostedAgent)
    if "places" in value:
        raise agent.error(name, "places", "this is not a key here")
    if not agent.file and not agent.addresses:
        raise agent.error(
            name, "", 'it needs url = "http://..." (an agent elsewhere) or file = "agent.py"'
        )
    if agent.file and agent.addresses:
        key = "url" if agent.url else "urls"
        raise agent.error(name, key, "it has a file as well; keep one of the two")
    remote = [key for key in value if key not in LOCAL]
    if agent.file and remote:
        raise agent.error(name, remote[0], "only an agent with a url has this; delete it")
    for key in ("timeout", "patience", "reply_within", "refresh"):
        if getattr(agent, key) <= 0:
            raise agent.error(name, key, "it must be more than 0")
    value["places"] = places


def _line_of(text: str, section: str, name: str, key: str = "") -> int:
    """Returns the line of a key in `[section.name]`, else of its header. tomllib does not tell."""
    header = re.compile(rf"\s*\[\s*{section}\s*\.\s*\"?{re.escape(name)}\"?\s*(?:\.\s*(\w+))?")
    word = re.compile(rf"\s*\"?{re.escape(key)}\"?\s*[.=]") if key else None
    inside, found = False, 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            head = header.match(line)
            inside = head is not None
            found = found or (number if inside else 0)
            if head is not None and key and head[1] == key:
                return number
        elif inside and word is not None and word.match(line):
            return number
    return found or _line(text, section, name)


def _unknown(path: Path, text: str, section: str, key: str, what: str) -> ConfigError:
    name = key or section
    return ConfigError(f"{path}:{_line(text, section, key)}: '{name}' is not a {what}.")


def _line(text: str, section: str, key: str) -> int:
    """Returns the line of a key, or of a section. tomllib does not tell, so we look for it."""
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*\"?([\w-]+)", line):
            inside = header[1]
            if inside == section and not key:
                return number
            continue
        word = re.match(r"\s*\"?([\w-]+)\"?\s*[.=]", line)
        if word and ((inside, word[1]) == (section, key) or (not inside and word[1] == section)):
            return number
    return 1


def _from_environ(environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for section, keys in _known().items():
        for key in keys if section not in NAMED else ():
            name = f"DRAGOMAN_{section}_{key}".upper()
            if name not in environ:
                continue
            try:
                one = msgspec.convert({section: {key: environ[name]}}, Settings, strict=False)
            except msgspec.ValidationError as exc:
                raise ConfigError(f"{name}: {str(exc).split(' - at')[0]}.") from None
            found.setdefault(section, {})[key] = getattr(getattr(one, section), key)
    return found


def _check_names(environ: Mapping[str, str], used: Container[str]) -> None:
    """Raises `ConfigError` for a variable that has the form of a setting, but is none. `used` are
    the variables that the settings name as the places of secrets."""
    for section, keys in _known().items():
        if section in NAMED:
            continue
        prefix = f"DRAGOMAN_{section}_".upper()
        for name in environ:
            key = name.removeprefix(prefix).lower()
            if not name.startswith(prefix) or key in keys or name in OTHERS or name in used:
                continue
            near = nearest(key, keys)
            listed = f"keys of [{section}] are: {', '.join(keys)}"
            meant = f"did you mean {prefix}{near.upper()}?" if near else listed
            raise ConfigError(f"{name} is no setting; {meant}")


def _variables_in(value: object) -> set[str]:
    """Returns the variables in which the settings say that secrets are."""
    if isinstance(value, dict):
        named = value.get("env")
        inner = set().union(*map(_variables_in, value.values())) if value else set()
        return inner | ({named} if isinstance(named, str) else set())
    return set().union(*map(_variables_in, value)) if isinstance(value, list) else set()


def _converted(sections: dict[str, dict[str, Any]], where: str) -> Settings:
    try:
        return msgspec.convert(sections, Settings)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"In {where}: {exc}") from None


def _known() -> dict[str, tuple[str, ...]]:
    return {
        name: getattr(type(part), "__struct_fields__", ())
        for name, part in msgspec.structs.asdict(Settings()).items()
    }
