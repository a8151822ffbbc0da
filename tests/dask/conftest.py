"""Fixtures: small Dask clusters with the gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gated_cluster import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two workers of one thread each; the gate is fair."""
    made = Cluster()
    made.install("fair")
    yield made
    made.close()


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes clusters, which end with the test."""
    made: list[Cluster] = []

    def make(**options: Any) -> Cluster:
        made.append(Cluster(**options))
        return made[-1]

    yield make
    for one in made:
        one.close()
