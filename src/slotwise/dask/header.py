"""The header of the log of a gate, from which its state and its scheduler are made."""

from __future__ import annotations

from dataclasses import replace

from slotwise.dask.options import GateOptions
from slotwise.model.cluster import ANY_KIND, Cluster, Host
from slotwise.record.log import Header
from slotwise.running import Options, RunSpec
from slotwise.sources import Source
from slotwise.workload.workload import Workload

HOST = "dask"
"""The one host of the log: slotwise does not choose the worker."""

REST_SECONDS = 0.05
"""The least time between allocations; free slots are filled by the last one meanwhile."""


def header_of(options: GateOptions) -> Header:
    """The header of a log that begins without slots and jobs."""
    workload = Workload((), pools=tuple(options.pools))
    cluster = Cluster((Host(HOST, {ANY_KIND: 0}),), kinds=frozenset({ANY_KIND}))
    given: Options = {"objective": options.objective}
    spec = RunSpec(options.scheduler, "live", (), cluster, Source(workload, ()), given, {})
    header = spec.header(rest_seconds=REST_SECONDS, is_open=True)
    # Dask decides how often a task is tried.
    return replace(header, attempts_max=10**9, losses_max=10**9)
