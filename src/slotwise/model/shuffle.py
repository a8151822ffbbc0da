"""The shuffle: how reduces get the output of maps (slides, problem 4; FLEX 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slotwise.model.cluster import ANY_KIND, MAX_SLOTS, Cluster, Host
from slotwise.model.errors import InputError
from slotwise.model.job import Job, Phase, Tasks
from slotwise.model.typed import check_range

REDUCE_KIND = "reduce"
COPY_KIND = "copy"


@dataclass(frozen=True, slots=True)
class Shuffle:
    """When reduces may begin to copy, and whether copying and computing have separate slots.

    slow_start       the part of the maps that must be done before reduces may begin to copy;
                     1: all (Hadoop: 0.05)
    split            copy-compute splitting: copying is a separate phase with its own slots, so
                     that a reduce holds a reduce slot only while it computes
    copies_per_slot  copies that a host may run at once for each of its reduce slots
    copies_per_job   copies that a job may run at once; None: the number of reduce slots
    """

    slow_start: float = 1.0
    split: bool = False
    copies_per_slot: int = 2
    copies_per_job: int | None = None

    def __post_init__(self) -> None:
        check_range("shuffle: slow_start", self.slow_start, 0, 1, "give a part from 0 to 1")
        remedy = f"give a whole number from 1 to {MAX_SLOTS}"
        for name in ("copies_per_slot", "copies_per_job"):
            value = getattr(self, name)
            if name == "copies_per_slot" or value is not None:
                check_range(f"shuffle: {name}", value, 1, MAX_SLOTS, remedy, whole=True)

    def cluster(self, cluster: Cluster) -> Cluster:
        """The cluster, with slots for copying added if `split` and it has none yet."""
        if not self.split or COPY_KIND in cluster.capacity:
            return cluster
        return replace(cluster, hosts=tuple(self.host(h, cluster) for h in cluster.hosts))

    def host(self, host: Host, cluster: Cluster) -> Host:
        """A host that joins this cluster, with slots for copying if it gives its hosts some."""
        if not self.split or COPY_KIND in cluster.capacity:
            return host
        copies = self.copies_per_slot * host.slots.get(cluster.slot_kind(REDUCE_KIND), 0)
        return replace(host, slots={**host.slots, COPY_KIND: copies})

    def job(self, job: Job, cluster: Cluster) -> Job:
        """The job with this shuffle for its reduces; other phases are unchanged.

        InputError if the name for a split-off copy phase is taken.
        """
        slots = cluster.capacity.get(REDUCE_KIND) or cluster.capacity.get(ANY_KIND, 1)
        phases: list[Phase] = []
        names = {phase.name for phase in job.phases}
        for phase in job.phases:
            if phase.kind != REDUCE_KIND or not phase.after:
                phases.append(phase)
            elif self.split:
                copying, computing = self._split(phase, slots)
                if copying.name in names:
                    raise InputError(
                        f"job {job.id!r}: phase {copying.name!r} has the name that the copying"
                        f" of {phase.name!r} gets when it is split off; rename it"
                    )
                phases += copying, computing
            else:
                phases.append(replace(phase, slow_start=min(phase.slow_start, self.slow_start)))
        return replace(job, phases=tuple(phases))

    def _split(self, phase: Phase, slots: int) -> tuple[Phase, Phase]:
        """A reduce phase as two: one that copies, and one that computes on the same hosts."""
        copying = Phase(
            f"{phase.name}-{COPY_KIND}",
            Tasks(phase.tasks.count, 0.0),
            COPY_KIND,
            phase.after,
            slots_max=self.copies_per_job or slots,
            slow_start=min(phase.slow_start, self.slow_start),
            copy=phase.copy,
        )
        computing = replace(
            phase, after=frozenset(), slow_start=1.0, copy=0.0, continues=copying.name
        )
        return copying, computing
