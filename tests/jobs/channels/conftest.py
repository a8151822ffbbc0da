"""A check that tests of channels leave nothing behind."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """A test leaves no descriptor, thread or file; children are waited for."""
    before, threads = descriptors(), set(threading.enumerate())
    yield
    if descriptors() - before:
        gc.collect()  # Other tests may have left what is collected at any time.
    assert {each.name for each in set(threading.enumerate()) - threads} == set()
    assert descriptors() - before == set()
    assert [each.name for each in tmp_path.iterdir() if each.name != "written"] == []


def descriptors() -> set[tuple[str, str]]:
    """The open descriptors of this process, with what they lead to."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return {each for each in found if "/proc/" not in each[1]}
