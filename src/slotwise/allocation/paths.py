"""The minimum duration of a job by its stated work: its paths and area on a cluster."""

from __future__ import annotations

from functools import lru_cache

from slotwise.model.cluster import Cluster
from slotwise.model.job import Job, Phase
from slotwise.objective.penalty import Size

LEAST = 1e-9
"""Seconds; a lower limit for sizes, which occur as divisors."""


JOBS_KEPT = 10_000
"""The number of multi-phase jobs whose paths are cached, since each decision needs them."""


def size_on(job: Job, cluster: Cluster) -> Size:
    """The job's work, and the minimum time that it takes alone. O(phases) at the first call."""
    if len(job.phases) > 1:
        return _kept(_On(job, cluster))[0]
    # `_size` gives the same in more than twice the time, and the cache is for longer jobs.
    phase = job.phases[0]
    return Size(max(phase.work_total() or 0.0, LEAST), max(LEAST, _length(phase, cluster)))


def tail_on(job: Job, phase: Phase, cluster: Cluster) -> float:
    """The minimum time from the end of a phase to the completion of its job, seconds."""
    if len(job.phases) == 1:
        return 0.0
    return _kept(_On(job, cluster))[1][phase.name] - _length(phase, cluster)


class _On:
    """A job on a cluster as a cache key; compares by identity, which is fast."""

    __slots__ = ("cluster", "job")

    def __init__(self, job: Job, cluster: Cluster) -> None:
        self.job, self.cluster = job, cluster

    def __hash__(self) -> int:
        return id(self.job)

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _On)
        return self.job is other.job and self.cluster is other.cluster


@lru_cache(JOBS_KEPT)
def _kept(on: _On) -> tuple[Size, dict[str, float]]:
    return _size(on.job, on.cluster), _to_the_end(on.job, on.cluster)


def _size(job: Job, cluster: Cluster) -> Size:
    path = max(_to_the_end(job, cluster).values())
    return Size(max(job.work or 0.0, LEAST), max(LEAST, path, _area(job, cluster)))


def _to_the_end(job: Job, cluster: Cluster) -> dict[str, float]:
    """The minimum time from the start of each phase to the completion of the job."""
    ends: dict[str, float] = {phase.name: 0.0 for phase in job.phases}  # From its end on.
    times: dict[str, float] = {}
    for phase in reversed(list(job.topological)):
        times[phase.name] = _length(phase, cluster) + ends[phase.name]
        for before in phase.waits_for:
            ends[before] = max(ends[before], times[phase.name])
    return times


def _area(job: Job, cluster: Cluster) -> float:
    """The time that its work takes on all slots of each kind, the maximum over kinds."""
    work: dict[str, float] = {}
    for phase in job.phases:
        kind = cluster.slot_kind(phase.kind)
        work[kind] = work.get(kind, 0.0) + (phase.work_total() or 0.0)
    # A kind without slots counts as one slot: its phases wait for a host.
    return max(amount / max(cluster.capacity[kind], 1) for kind, amount in work.items())


def _length(phase: Phase, cluster: Cluster) -> float:
    slots = min(phase.slots_most, cluster.capacity[cluster.slot_kind(phase.kind)])
    return (phase.work_total() or 0.0) / max(slots, 1)
