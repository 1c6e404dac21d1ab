"""Reads the settings from the flags, the environment and the file, in this order of precedence."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from dragoman.core.errors import ConfigError

from .checks import check
from .sections import Settings

FILE = "dragoman.toml"
IAT_SECRET = "IAT_SECRET"  # noqa: S105  the name of a variable
"""The variable with the secret that hosts and agents share, if `[iat] secret` is not set."""
NAMED = frozenset(("agents", "auth", "retention"))
"""Sections whose keys are names the operator chooses."""


def load(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """Returns the effective settings. `flags` are keys of `[server]`, and None means that a flag
    was not given. `signing_keys` is `[signing] keys`, `workspace` is `[workspace] root`.

    Raises `ConfigError` naming the file and line, the variable or the flag that is wrong.
    """
    if config is None:
        config = Path(FILE) if Path(FILE).is_file() else None
    sections = _from_file(config) if config is not None else {}
    for agent in sections.get("agents", {}).values():
        assert config is not None  # noqa: S101  only the file has such sections
        agent["file"] = str(config.parent / agent["file"])
    for section, keys in _from_environ(environ or {}).items():
        sections.setdefault(section, {}).update(keys)
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    if "signing_keys" in given:
        sections.setdefault("signing", {})["keys"] = given.pop("signing_keys")
    if "workspace" in given:
        sections.setdefault("workspace", {})["root"] = given.pop("workspace")
    if "iat_host" in given:
        sections.setdefault("iat", {})["host"] = given.pop("iat_host")
    if environ and environ.get(IAT_SECRET):
        sections.setdefault("iat", {}).setdefault("secret", {"env": IAT_SECRET})
    server = sections.setdefault("server", {})
    server.update(given)
    if "grpc_port" in server or "grpc_url" in server:
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
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{path}: {exc}") from None
    known = _known()
    for section, keys in found.items():
        if section not in known:
            raise _unknown(path, text, section, "", f"section; known are: {', '.join(known)}")
        if not isinstance(keys, dict):
            raise _unknown(path, text, section, "", "key here; it belongs in a [section]")
        for key in keys if section not in NAMED else ():
            if key not in known[section]:
                listed = ", ".join(known[section])
                raise _unknown(path, text, section, key, f"key in [{section}]; known are: {listed}")
    for section in NAMED & found.keys():
        for name, value in found[section].items():
            _check_named(path, text, section, name, value)
    try:
        msgspec.convert(found, Settings)
    except msgspec.ValidationError as exc:
        where = re.search(r"\$\.(\w+)\.(\w+)", str(exc))
        line = _line(text, *where.groups()) if where else 1
        raise ConfigError(f"{path}:{line}: {exc}") from None
    return found


def _check_named(path: Path, text: str, section: str, name: str, value: object) -> None:
    """Names the line of a wrong `[section.name]`, which msgspec calls `[...]`."""
    try:
        msgspec.convert({section: {name: value}}, Settings)
    except msgspec.ValidationError as exc:
        what, _, where = str(exc).partition(" - at ")
        inner = re.sub(r"^`\$\.\w+(\[\.\.\.\])?\.?|`$", "", where).replace("[...]", ".NAME")
        if inner.endswith("secret") and "got `str`" in what:
            what = 'a secret is never written here: give {env = "X"} or {file = "path"}'
        header = re.compile(rf"\s*\[\s*{section}\s*\.\s*\"?{re.escape(name)}\b")
        line = next((n for n, each in enumerate(text.splitlines(), 1) if header.match(each)), 1)
        place = f" (at {inner})" if inner else ""
        raise ConfigError(f"{path}:{line}: [{section}.{name}]: {what}{place}") from None


def _unknown(path: Path, text: str, section: str, key: str, what: str) -> ConfigError:
    name = key or section
    return ConfigError(f"{path}:{_line(text, section, key)}: '{name}' is not a {what}.")


def _line(text: str, section: str, key: str) -> int:
    """The line of a key, or of a section. tomllib does not tell, so we look for it."""
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
