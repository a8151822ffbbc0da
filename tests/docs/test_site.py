"""The site of the documents: it builds without a warning, and its reference is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import slotwise

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference.md"


def test_the_reference_lists_each_public_name_once() -> None:
    """The names that begin the items of the page are the public names."""
    names = re.findall(r"^- `(\w+)`", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(names) == sorted(slotwise.PUBLIC)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """All links have targets, all docstrings parse, and the root leads to the index.

    The reference has the methods of a future that are for users, and no others.
    """
    pytest.importorskip("sphinx")
    build = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    folders = [
        "--conf-dir",
        "docs",
        "--doctree-dir",
        str(tmp_path / "cache"),
        ".",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(
        [*build, *folders], cwd=ROOT, capture_output=True, text=True, timeout=110
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "docs/index.html" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    reference = (tmp_path / "site" / "docs" / "reference.html").read_text(encoding="utf-8")
    assert 'id="slotwise.Session.submit"' in reference
    methods = set(re.findall(r'id="slotwise\.Future\.(\w+)"', reference))
    assert methods == {"result", "exception", "cancel", "explain", "progress"}
