"""Every golden log is as it was, byte by byte."""

from __future__ import annotations

import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

from golden import golden

ROOT = Path(__file__).parents[2]
COMPUTING = ("numpy", "numba", "ortools")
"""The packages that logs depend on, besides Python: they round and search in their own ways."""

PYTHON = (3, 11)
"""From 3.12 on, `sum` of floats rounds otherwise."""


def other_versions() -> str:
    """What is installed in another version than the digests are for."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    installed = {one.name.lower(): one.version for one in distributions() if one.name}
    found = [
        f"{name} is {installed.get(name, 'missing')}, not {pinned[name]}"
        for name in COMPUTING
        if installed.get(name) != pinned[name]
    ]
    if sys.version_info[:2] != PYTHON:
        found.append("Python is not {}.{}".format(*PYTHON))
    return "; ".join(found)


pytestmark = pytest.mark.skipif(bool(other_versions()), reason=other_versions())


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("kind", "name", "case"),
    [pytest.param(*one, id=f"{one[0]}-{one[1]}") for one in golden.all_cases()],
)
def test_log_is_as_it_was(kind: str, name: str, case: golden.Case, tmp_path: Path) -> None:
    """The digest of the log is the one on record."""
    log = tmp_path / f"{name}.jsonl"
    case(log)
    assert golden.digest(log) == golden.digests(kind)[name], "see golden/golden.py for a diff"


def test_no_digest_is_left_over() -> None:
    """Each digest belongs to a case, and each case has one."""
    names = {(kind, name) for kind, name, _ in golden.all_cases()}
    assert names == {(kind, name) for kind in golden.KINDS for name in golden.digests(kind)}
