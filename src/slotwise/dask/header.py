"""The header of the log of a gate, from which its state and its scheduler are made."""

from __future__ import annotations

from dataclasses import replace

from slotwise.dask.options import GateOptions
from slotwise.model.cluster import ANY_KIND, Cluster, Host
from slotwise.record.log import Header
from slotwise.running import Options, RunSpec
from slotwise.scheduler import make_allocator
from slotwise.sources import Source
from slotwise.workload.workload import Workload

HOST = "dask"
"""The one host of the log: slotwise does not choose the worker."""

REST_SECONDS = 0.01
"""The least time between allocations; free slots are filled by the last one meanwhile.

An allocation of few phases takes up to 1 ms. When a stage of a small graph begins, free slots
go to others until the next allocation, and each of their tasks keeps its slot to its end.
"""

SEARCH_REST_SECONDS = 0.05
"""The same for allocators that search: an allocation takes about 20 ms."""

QUICK_SECONDS = 1e-4
"""The `phase_seconds` of an allocator that searches are above this."""


def header_of(options: GateOptions) -> Header:
    """The header of a log that begins without slots and jobs."""
    workload = Workload((), pools=tuple(options.pools))
    cluster = Cluster((Host(HOST, {ANY_KIND: 0}),), kinds=frozenset({ANY_KIND}))
    given: Options = {"objective": options.objective}
    spec = RunSpec(options.scheduler, "live", (), cluster, Source(workload, ()), given, {})
    allocator = make_allocator(options.scheduler, options.objective)
    is_quick = allocator.phase_seconds <= QUICK_SECONDS
    rest = REST_SECONDS if is_quick else SEARCH_REST_SECONDS
    header = spec.header(rest_seconds=rest, is_open=True)
    # Dask decides how often a task is tried.
    return replace(header, attempts_max=10**9, losses_max=10**9)
