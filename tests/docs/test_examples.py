"""Every example is run and prints the output next to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_prints_its_output(script: Path, run_example: Callable[[Path], str]) -> None:
    """The output of an example is the text of its .out file."""
    assert run_example(script) == script.with_suffix(".out").read_text(encoding="utf-8")


def test_every_output_has_an_example() -> None:
    """There is no output without its example."""
    outputs = {path.stem for path in EXAMPLES.glob("*.out")}
    assert outputs == {path.stem for path in EXAMPLES.glob("*.py")} != set()
