"""xarray behind the gate."""

from __future__ import annotations

import numpy
import pytest
import xarray

from gated_cluster import Cluster


@pytest.mark.slow
def test_xarray_computes_what_it_does_without_the_gate(cluster: Cluster) -> None:
    """Means of a chunked array over one of its dimensions."""
    table = xarray.DataArray(numpy.arange(240.0).reshape(40, 6), dims=("time", "place"))
    expected = (table + 1).rolling(time=3).mean().mean("time")
    with cluster.client("analysis").as_current():
        found = (table.chunk({"time": 8}) + 1).rolling(time=3).mean().mean("time").compute()
    xarray.testing.assert_allclose(found, expected)
    assert cluster.gate._computations.launches > 0
    cluster.check_empty()
