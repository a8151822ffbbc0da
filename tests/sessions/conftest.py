"""One session for many tests, and functions for calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slotwise import Pool, Preemption, Session


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """A session of two slots, with a pool that takes its slot back at once."""
    pools = [
        Pool("urgent", slots_min=1, preemption=Preemption(least_after=0.0, grace=0.0)),
        Pool("narrow", slots_max=1),
    ]
    with Session(2, "fair", pools=pools) as opened:
        yield opened
