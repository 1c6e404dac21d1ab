"""The site of `make docs`, and the list of what users ask for."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dragoman
import pages
from counts import FULL
from pages import DOCS, ROOT

INSTALLED = importlib.util.find_spec("sphinx") is not None
BUILDER = DOCS / "site_builder.py"


def test_the_fifteen_requests_have_a_page_and_a_test_each() -> None:
    rows = pages.rows((DOCS / "requests.md").read_text("utf-8"))
    assert len(rows) == 15
    for request, page, test in rows:
        assert re.search(r"\]\([^)]+\)", page), request
        path = ROOT / test.strip("`")
        assert path.is_file(), test
        assert "def test_" in path.read_text("utf-8"), test


@pytest.mark.slow  # builds all pages
@pytest.mark.skipif(not (INSTALLED or FULL), reason="make docs installs Sphinx, make test-full too")
def test_the_site_has_every_page_a_search_and_the_signatures_of_the_api(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(BUILDER), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "html"
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file(), page
    assert (site / "search.html").is_file()
    assert "kyoto" in (site / "searchindex.js").read_text("utf-8").lower()
    shown = "".join(path.read_text("utf-8") for path in (site / "api").glob("*.html"))
    for name in dragoman.__all__:
        known = f'id="dragoman.{name}"' in shown or f'id="dragoman.client.{name}"' in shown
        assert known or name.startswith("__"), name
    text = re.sub(r"<[^>]+>", "", shown)
    assert re.search(r"async send\(\s*\*what: object", text)
    assert "async dragoman.adapters.langgraph.run_graph(" in re.sub(r"\s+", " ", text)
