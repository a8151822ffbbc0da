"""Every golden log is as it was, byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden import golden


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
