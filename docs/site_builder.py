"""Builds the site: `python docs/site_builder.py FOLDER`, or `make docs`.

The pages of `docs/` are copied, get a table of contents, and an API reference is made from the code
beside them. Sphinx then builds them, with a search. A broken link or a name that cannot be imported
fails the build.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
SECTIONS = {
    "Guide": "guide/*.md",
    "Frameworks": ("frameworks.md", "frameworks/*.md"),
    "Dialects": "dialects/*.md",
    "Extensions": "extensions/*.md",
    "API": "api/*.md",
    "Reference": "*.md",
    "Decisions": "adr/*.md",
}
"""The sections of the table of contents, with their pages: a page stands in the first."""
API = {
    "agent": ("Writing agents", "dragoman", ("Agent", "Turn", "SyncTurn", "Answer", "Backend")),
    "model": (
        "Tasks, messages and events",
        "dragoman",
        (
            *("Task", "Status", "State", "Message", "Role", "Artifact", "Part", "Text", "Data"),
            *("Blob", "Link", "Hook", "Stamped", "Event", "Opened", "StateChanged"),
            *("ArtifactChunk", "Asked", "Ask", "Noted", "Note", "Snapshot"),
            *("Extension", "Provider", "file"),
        ),
    ),
    "client": (
        "Calling agents",
        "dragoman.client",
        (
            *("connect", "RemoteAgent", "Events", "TaskEvents", "Conversation", "ClientLimits"),
            *("Auth", "Credentials", "SharedSecret", "Certificate"),
        ),
    ),
    "sync": ("Calling agents without async", "dragoman.sync", None),
    "testing": ("Testing", "dragoman.testing", ("Client", "served")),
    "serving": ("Serving", "dragoman.app", ("App", "create_app")),
    "settings": ("Settings", "dragoman.settings", None),
    "errors": ("Errors", "dragoman.core.errors", None),
    "adapters-starlette": ("Adapter: FastAPI and Starlette", "dragoman.adapters.starlette", None),
}
"""The pages of the API reference: title, module, and its names; None means all that are public."""
SIGNED_BY_SOURCE = ("langgraph", "pydantic_ai", "openai_agents", "google_adk", "crewai")
"""Adapters whose frameworks are not installed here."""
CONF = """
project = "Dragoman"
copyright = "The Dragoman authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.mermaid"]
root_doc = "README"
html_theme = "furo"
html_title = "Dragoman"
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_mock_imports = {mocked!r}
autodoc_default_options = {{"members": True, "show-inheritance": False}}
python_maximum_signature_line_length = 88
suppress_warnings = ["misc.highlighting_failure", "ref.python"]
default_role = "code"
"""
MOCKED = ["agents", "crewai", "google.adk", "google.genai", "langchain_core", "langgraph"]
MOCKED += ["pydantic_ai"]


def copy_pages(folder: Path) -> None:
    """Copies the pages. What links to a file that is no page is shown without the link."""
    for page in sorted(DOCS.rglob("*.md")):
        there = folder / page.relative_to(DOCS)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(_linked(page), "utf-8")
    shutil.copytree(DOCS / "pictures", folder / "pictures")


def _linked(page: Path) -> str:
    def link(found: re.Match[str]) -> str:
        target = found[2].partition("#")[0]
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = (page.parent / target).resolve()
        inside = path.is_relative_to(DOCS) and path.suffix in (".md", ".svg")
        return found[0] if inside else f"{found[1]} (`{path.relative_to(ROOT).as_posix()}`)"

    return re.sub(r"\[([^]]*)\]\(([^)\s]+)\)", link, page.read_text("utf-8"))


def write_contents(folder: Path) -> None:
    """Adds the table of contents to the first page."""
    seen = {"README.md"}
    parts = []
    for title, patterns in SECTIONS.items():
        names: list[str] = []
        for pattern in (patterns,) if isinstance(patterns, str) else patterns:
            names += sorted(p.relative_to(folder).as_posix() for p in folder.glob(pattern))
        own = [name for name in names if name not in seen]
        seen.update(own)
        listed = "\n".join(name.removesuffix(".md") for name in own)
        parts.append(f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{listed}\n```\n")
    readme = folder / "README.md"
    readme.write_text(readme.read_text("utf-8") + "\n" + "\n".join(parts), "utf-8")


def write_api(folder: Path) -> None:
    """Writes the pages of the API reference; autodoc fills them with signatures and docstrings."""
    api = folder / "api"
    api.mkdir()
    for name, (title, module, names) in API.items():
        (api / f"{name}.md").write_text(_api_page(title, module, names), "utf-8")
    for name in SIGNED_BY_SOURCE:
        module = f"dragoman.adapters.{name}"
        page = _api_page(f"Adapter: {name.replace('_', ' ')}", module, None)
        (api / f"adapters-{name}.md").write_text(page, "utf-8")


def _api_page(title: str, module: str, names: tuple[str, ...] | None) -> str:
    if names is None:
        body = f".. automodule:: {module}\n   :members:\n"
        if module == "dragoman.settings":
            body += "   :imported-members:\n   :exclude-members: FILE, IAT_SECRET, NAMED\n"
    else:
        body = "".join(f".. {_directive(module, each)}:: {module}.{each}\n\n" for each in names)
    return f"# {title}\n\n```{{eval-rst}}\n{body}```\n"


def _directive(module: str, name: str) -> str:
    found = getattr(importlib.import_module(module), name)
    return "autoclass" if isinstance(found, type) else "autofunction"


def build(target: Path) -> int:
    """Builds the site below a folder, and returns the exit code of Sphinx."""
    from sphinx.cmd.build import build_main

    source = target / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    copy_pages(source)
    write_api(source)
    write_contents(source)
    (source / "conf.py").write_text(CONF.format(mocked=MOCKED), "utf-8")
    jobs = str(min(os.cpu_count() or 1, 4))
    return build_main(["-q", "-W", "--keep-going", "-j", jobs, str(source), str(target / "html")])


if __name__ == "__main__":
    where = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build" / "docs"
    code = build(where)
    if not code:
        print(f"{os.path.relpath(where / 'html' / 'README.html')} is the first page")
    sys.exit(code)
