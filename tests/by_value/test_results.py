"""Calls run by slotwise show what the same calls show in a ProcessPoolExecutor."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("script_of_values.py")

PATHS = ("executor", "chunks", "map", "stored", "chained", "joblib", "dask", "calls")


@cache
def shown(path: str) -> list[str]:
    """What the script shows when its calls are made in this way."""
    command = [sys.executable, "-W", "ignore", SCRIPT, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("path", PATHS)
def test_a_script_shows_what_it_shows_with_a_process_pool(path: str) -> None:
    """Classes, functions and exceptions are its own, unchanged; a job fails as a whole."""
    expected = shown("pool")
    if path == "calls":
        expected = [line for line in expected if not line.startswith(("failed", "group"))]
    assert shown(path) == expected
