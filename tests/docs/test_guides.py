"""The guides for contributors: their steps are applied to a copy of the project, and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
HOWTO = ROOT / "docs" / "howto"
BLOCK = r"\n\n(?P<block> *```\w+\n.*?^ *```\n)"
CREATED = re.compile(r"Create `(\w+\.py)` beside `(\S+)`:" + BLOCK, re.MULTILINE | re.DOTALL)
CHANGED = re.compile(
    r"(In|Optionally, in) `(\S+)`, (before|after) the line that begins `([^\n]+)`:" + BLOCK,
    re.MULTILINE | re.DOTALL,
)
TRIED = re.compile(
    r"^Try it:\n\n```python\n(.*?)^```\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL
)


def added(block: str) -> str:
    """The lines in a block, without the indentation of their step."""
    return "".join(dedent(block).splitlines(keepends=True)[1:-1])


def follow(text: str, copy: Path) -> set[str]:
    """Apply the steps of a guide; returns the files that it must touch."""
    touched = set()
    for created in CREATED.finditer(text):
        name, neighbour = created.group(1, 2)
        path = (copy / neighbour).with_name(name)
        assert not path.exists()
        path.write_text(added(created["block"]), encoding="utf-8")
        touched.add(str(path))
    for change in CHANGED.finditer(text):
        must, name, where, begin = change.group(1, 2, 3, 4)
        path = copy / name
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        places = [n for n, line in enumerate(lines) if line.lstrip().startswith(begin)]
        assert len(places) == 1, f"{name}: {begin}"
        lines.insert(places[0] + (where == "after"), added(change["block"]))
        path.write_text("".join(lines), encoding="utf-8")
        touched |= {str(path)} if must == "In" else set()
    return touched


@pytest.mark.parametrize(
    ("page", "files_max"),
    [
        ("add-an-allocator.md", 3),
        ("add-a-metric.md", 2),
        ("add-a-trace-format.md", 3),
        ("add-a-penalty.md", 3),
        ("add-a-backend.md", 4),
    ],
)
def test_a_guide_can_be_followed(page: str, files_max: int, tmp_path: Path) -> None:
    """Its steps touch few files, all named, and its last program prints what it states."""
    text = (HOWTO / page).read_text(encoding="utf-8")
    for folder in ("src", "docs"):
        copytree(ROOT / folder, tmp_path / folder, ignore=ignore_patterns("__pycache__"))
    touched = follow(text, tmp_path)
    assert 2 <= len(touched) <= files_max, touched
    tried = TRIED.search(text)
    assert tried is not None
    result = subprocess.run(
        [sys.executable, "-c", tried[1]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    printed = result.stdout + result.stderr
    pattern = re.escape(tried[2].rstrip()).replace(re.escape("..."), ".*")
    assert re.fullmatch(pattern, printed.rstrip(), re.DOTALL), printed
