"""One of each: what is named or written in one place only (docs/architecture.md)."""

from __future__ import annotations

import ast
import functools
import gc
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "dragoman"


@functools.cache
def trees() -> dict[str, ast.Module]:
    """All modules by their paths."""
    gc.disable()  # they are a million objects, which it would look at again and again
    try:
        return {
            path.relative_to(SRC).as_posix(): ast.parse(path.read_text("utf-8"))
            for path in sorted(SRC.rglob("*.py"))
        }
    finally:
        gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _forget() -> Iterator[None]:
    """Leaves nothing of it to the tests of other files."""
    yield
    for known in (trees, _nodes, _imports):
        known.cache_clear()


@functools.cache
def _nodes(tree: ast.Module) -> list[ast.AST]:
    """Everything in a module."""
    return list(ast.walk(tree))


def _literals(tree: ast.Module) -> set[str]:
    """The strings of a module that are values, and not docstrings."""
    prose = {node.value for node in _nodes(tree) if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in _nodes(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose
    }


def test_the_uris_of_our_extensions_are_written_in_one_module() -> None:
    found = defaultdict(set)
    for name, tree in trees().items():
        for text in _literals(tree):
            if text.startswith("urn:dragoman:"):
                found[name].add(text)
    assert list(found) == ["core/extensions.py"]


@functools.cache
def _imports(tree: ast.Module) -> set[str]:
    found = set()
    for node in _nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


def _importers(*modules: str) -> list[str]:
    return [name for name, tree in trees().items() if _imports(tree) & set(modules)]


def test_signatures_of_tokens_are_verified_in_one_module() -> None:
    """Cards have a verification of their own: their payload is canonical JSON, not base64."""
    verifiers = _importers("joserfc.jws", "joserfc.jwt")
    assert verifiers == ["dialects/a2a/cards/signatures.py", "security/jws.py"]


def test_there_is_one_style_of_logging() -> None:
    """Modules log through `core.log`; the server's log takes what libraries say as well."""
    assert _importers("logging") == ["core/log.py", "observability/log.py"]


def test_there_is_one_http_client_and_one_for_broken_requests() -> None:
    clients = _importers("httpcore2", "httpx2", "http.client", "urllib.request", "h2.connection")
    outbound = [f"security/outbound/{name}.py" for name in ("guarded_http", "http2")]
    mcp = ["mcp/connection.py", "mcp/guarded_transport.py"]  # what its package wants, over ours
    assert clients == ["doctor/guard.py", "doctor/http.py", *mcp, *outbound]


def test_no_two_public_classes_share_a_name() -> None:
    """Wire structs keep the words of their specification, which versions share."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, tree in trees().items():
        if name.startswith("dialects/") and name.endswith(("wire.py", "objects.py")):
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(name)
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_what_the_garbage_collector_passes_by_holds_values_only() -> None:
    """A struct with `gc=False` that holds an error, a function or an object of ours can be a part
    of a cycle, which then is never freed: an error holds the frames that it went through."""
    classes = [
        node for tree in trees().values() for node in _nodes(tree) if isinstance(node, ast.ClassDef)
    ]

    values = {"Struct", "Enum", "StrEnum", "IntEnum"}
    while True:  # until none is found that stands on one of them
        more = {
            node.name
            for node in classes
            if values & set(re.findall(r"\w+", " ".join(map(ast.unparse, node.bases))))
        }
        if more <= values:
            break
        values |= more
    objects = {node.name for node in classes} - values | {"Callable", "Exception", "Future"}

    wrong = []
    for owner in classes:
        if "gc=False" in map(ast.unparse, owner.keywords):
            for field in owner.body:
                if isinstance(field, ast.AnnAssign):
                    words = set(re.findall(r"\w+", ast.unparse(field.annotation)))
                    if words & objects:
                        wrong.append((owner.name, ast.unparse(field)))
    assert wrong == []


def test_the_methods_of_a_store_are_not_participles() -> None:
    """A participle says neither what a method does nor what it returns."""
    wrong = [
        f"{owner.name}.{method.name}"
        for name in ("store/interface.py", "store/sessions.py")
        for owner in trees()[name].body
        if isinstance(owner, ast.ClassDef)
        for method in owner.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        if re.fullmatch(r"held|[a-z]+ed", method.name)
    ]
    assert wrong == []


def test_no_sentence_begins_with_who() -> None:
    """A sentence has a subject: "A caller that ...", and not "Who ..." or "Whoever ..."."""
    sentence = re.compile(r"(?:^|[.:] |[\"#] ?)Who(?:ever|m|se)? (?!=)", re.MULTILINE)
    wrong = []
    for path in sorted(SRC.rglob("*.py")):
        text = path.read_text("utf-8")
        if not sentence.search(text):
            continue  # to take it apart takes longer
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            prose = token.type in (tokenize.STRING, tokenize.COMMENT) and "?" not in token.string
            if prose and sentence.search(token.string):
                wrong.append(f"{path.relative_to(SRC)}:{token.start[0]}: {token.string[:70]}")
    assert wrong == []
