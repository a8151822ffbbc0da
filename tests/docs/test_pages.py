"""The pages that people follow step by step, followed step by step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

FOLLOWED = (
    "README.md",
    "docs/tutorial.md",
    "docs/workload-file.md",
    "docs/howto/use-from-python.md",
    "docs/howto/read-a-report.md",
    "docs/howto/replay-a-trace.md",
    "docs/howto/history.md",
    "docs/howto/emulate-a-cluster.md",
)


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_page_tells_what_happens(name: str, page_faults: Callable[[str], list[str]]) -> None:
    """Every file, block of Python and command of the page gives what the page shows."""
    assert page_faults(name) == []


def test_dots_stand_for_anything(matches: Callable[[str, str], bool]) -> None:
    """Timings are elided by three dots; all the rest is compared."""
    assert matches("took ... s\nend\n", "took 1.5 s\nend\n")
    assert matches("begin\n...\nend", "begin\none\ntwo\nend\n")
    assert not matches("took ... s\nend\n", "took 1.5 s\nstop\n")
    assert not matches("a.b", "aXb")
