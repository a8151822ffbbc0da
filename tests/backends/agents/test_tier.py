"""The tier of `--agents`, in which the tests of live runs use agents."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

ONE = "tests/faults/test_dataflow.py::test_a_node_that_fails_is_the_one_failure_of_its_job"


@pytest.mark.slow
def test_the_tier_runs(tmp_path: Path) -> None:
    """By one of its tests, so that a change that breaks all of it is noticed at once."""
    command = [sys.executable, "-m", "pytest", "--agents", "-q", "-n", "0", "-p"]
    command += ["no:cacheprovider", f"--basetemp={tmp_path}", ONE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.OK, done.stdout
