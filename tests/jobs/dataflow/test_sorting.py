"""Records sorted by a key in bounded memory."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slotwise.jobs.dataflow import ends
from slotwise.jobs.dataflow.ends import sorted_by_key


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.lists(st.integers(0, 9)), memory_bytes=st.sampled_from([1, 200, 1 << 20]))
def test_the_order_is_that_of_sorted(
    keys: list[int], memory_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of records with equal keys, and if runs go to disk; nothing is left there."""
    monkeypatch.setattr(ends, "SLICE_RECORDS", 3)
    records = [(key, place) for place, key in enumerate(keys)]
    by = itemgetter(0)
    assert list(sorted_by_key(records, by, memory_bytes, tmp_path)) == sorted(records, key=by)
    assert not list(tmp_path.iterdir())
