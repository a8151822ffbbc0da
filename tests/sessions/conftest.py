"""One session for many tests, or a client of one server, and functions for calls."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.conftest import RunningServer
from slotwise import Client, Pool, Preemption, Session

POOLS = [
    Pool("urgent", slots_min=1, preemption=Preemption(least_after=0.0, grace=0.0)),
    Pool("narrow", slots_max=1),
]


SERVED = """
scheduler = "fair"
[[pools]]
name = "urgent"
slots_min = 1
preemption = { least_after = 0.0, grace = 0.0 }
[[pools]]
name = "narrow"
slots_max = 1
[[pools]]
name = "any"
[[pools]]
name = "other"
[[pools]]
name = "research"
"""


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    """A server of two slots, with the same pools."""
    pytest.importorskip("uvicorn")
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        config = Path(folder, "service.toml")
        config.write_text(SERVED)
        running = RunningServer(Path(folder), "--config", str(config))
        try:
            yield running.start()
        finally:
            running.end()


@pytest.fixture(scope="module", params=["session", "client"])
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A session of two slots, with a pool that takes its slot back at once; or a client."""
    if request.param == "client":
        with Client(request.getfixturevalue("server").url) as client:
            yield client
        return
    with Session(2, "fair", pools=POOLS) as opened:
        yield opened


@pytest.fixture(autouse=True)
def of_sessions_only(request: pytest.FixtureRequest) -> None:
    """Skip a test that is not for clients, before its client is made."""
    marker = request.node.get_closest_marker("session_only")
    if marker is not None and "client" in getattr(request.node, "name", "").rpartition("[")[2]:
        pytest.skip(f"not for clients: {marker.args[0]}")
