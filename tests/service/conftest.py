"""Processes of the tests of the service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.servers import processes_of
from slotwise.service.supervised import SupervisorLink
from waiting import until


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a service. At the end, no process of it may be left."""
    yield tmp_path
    SupervisorLink.of(f"{tmp_path}/none")  # Drops the link to a supervisor.
    until(lambda: not processes_of(tmp_path))
