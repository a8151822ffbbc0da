"""Planning: an allocator's whole malleable schedule of a static problem, from one instant on.

Shares are constant between two completions of phases and decided again at each completion. For
single-phase jobs under FLEX this is exactly the malleable packing scheme.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import VirtualTime
from slotwise.core.errors import InputError
from slotwise.core.job import Job, Phase, PhaseId
from slotwise.core.pools import PoolTree, ShareKey
from slotwise.core.schedule import Piece, Schedule
from slotwise.core.tolerances import CLOCK, ROUNDING
from slotwise.policy.allocator import Allocator, Claims, reads_finish, reads_service
from slotwise.policy.claims import build_claims, with_standing
from slotwise.policy.malleable import merged, wrap_around
from slotwise.policy.resource_shares import share_all
from slotwise.policy.uwfq import Sized, advanced


@dataclass(slots=True)
class PhaseProgress:
    """An unfinished phase: work and remaining work, slot-seconds, and what it waits for."""

    id: PhaseId
    job: Job
    phase: Phase
    work: float
    left: float
    waits_for: set[str]


def fluid_schedule(
    jobs: Sequence[Job], cluster: Cluster, pools: PoolTree, allocator: Allocator
) -> Schedule:
    """The schedule that the allocator produces when all jobs are present at time 0.

    InputError for jobs that arrive later and for phases of unknown work or of work 0.
    Fractional shares become whole slots by wrap-around, without loss. O(P) steps for P phases,
    each with the cost of one allocation among the ready phases.
    """
    phases = [progress_of(job, phase) for job in jobs for phase in job.topological]
    place = {one.id: number for number, one in enumerate(phases)}
    successors = waiting_for(phases)
    jobs_left = _JobsLeft(phases)
    ready = [one for one in phases if jobs_left.may_begin(one)]
    pieces: list[Piece] = []
    now, standing = 0.0, _Standing(phases, jobs, cluster, pools, allocator)
    while ready:
        shares, length = _share(ready, cluster, pools, allocator, now, standing)
        rates = [(one, share) for one, share in zip(ready, shares, strict=True) if share > 0]
        assert rates, "some ready phase gets a slot"
        # The phases of each pool, inner or outer, are adjacent, so that wrap-around also keeps
        # the shares of all pools.
        rates.sort(key=lambda rate: _shares(rate[0], pools))
        then = now + min(length, *(one.left / share for one, share in rates))
        for kind in cluster.capacity:
            of_kind = [(o.id, s) for o, s in rates if cluster.slot_kind(o.phase.kind) == kind]
            pieces += wrap_around(of_kind, now, then)
        for one, share in rates:
            one.left -= share * (then - now)  # From rounded instants, as pieces are measured.
            if standing.attained:
                standing.attained[one.job.id] += share * (then - now)
        now = then
        tick = CLOCK * now
        ended = {o.id for o, s in rates if o.left <= max(ROUNDING * o.work, tick * s)}
        for one in ready:
            if one.id in ended:
                one.left = 0.0
        ready = [one for one in ready if one.id not in ended]
        come = [one for one in freed(ended, successors) if jobs_left.may_begin(one)]
        come += jobs_left.released(ended)
        if come:
            ready = sorted([*ready, *come], key=lambda one: place[one.id])
    return Schedule(merged(pieces))


def waiting_for(phases: Iterable[PhaseProgress]) -> dict[PhaseId, list[PhaseProgress]]:
    """For each phase, the phases that wait for it."""
    successors: dict[PhaseId, list[PhaseProgress]] = {}
    for one in phases:
        for name in one.waits_for:
            successors.setdefault(PhaseId(one.job.id, name), []).append(one)
    return successors


def freed(
    ended: Iterable[PhaseId], successors: Mapping[PhaseId, Sequence[PhaseProgress]]
) -> list[PhaseProgress]:
    """The phases that become ready when these have ended; updates their `waits_for`."""
    ready = []
    for phase in ended:
        for one in successors.get(phase, ()):
            one.waits_for.remove(phase.phase)
            if not one.waits_for:
                ready.append(one)
    return ready


def progress_of(job: Job, phase: Phase) -> PhaseProgress:
    """The progress of a phase before it begins.

    InputError if its work is unknown or 0, or if the job arrives after time 0.
    """
    work = phase.work_total()
    if work is None:
        raise InputError(
            f"job {job.id!r}, phase {phase.name!r}: a plan needs its work; state it"
        )
    if job.arrival > 0:
        raise InputError(
            f"job {job.id!r}: arrival is {job.arrival}, but a plan takes every job as present"
            " at time 0; set it to 0, or simulate"
        )
    if work == 0:
        raise InputError(
            f"job {job.id!r}, phase {phase.name!r}: a plan needs work > 0, not 0;"
            " leave out what has nothing to do, or simulate"
        )
    return PhaseProgress(
        PhaseId(job.id, phase.name), job, phase, work, work, set(phase.waits_for)
    )


class _JobsLeft:
    """The jobs that are not done, and the phases of jobs that wait for them."""

    def __init__(self, phases: Sequence[PhaseProgress]) -> None:
        self._phases = _by_job(phases)
        self._left = {job: len(own) for job, own in self._phases.items()}
        self._waits = {
            job: set(own[0].job.predecessors & self._left.keys())
            for job, own in self._phases.items()
            if own[0].job.predecessors
        }

    def may_begin(self, one: PhaseProgress) -> bool:
        """Whether a phase waits for no phase and no job."""
        return not one.waits_for and not self._waits.get(one.job.id)

    def released(self, ended: Iterable[PhaseId]) -> list[PhaseProgress]:
        """The phases that may begin because these have ended, and with them whole jobs."""
        found: list[PhaseProgress] = []
        for phase in ended:
            self._left[phase.job] -= 1
            if self._left[phase.job] or not self._waits:
                continue
            for job, waits in self._waits.items():
                if phase.job in waits:
                    waits.remove(phase.job)
                    found += [one for one in self._phases[job] if self.may_begin(one)]
        return found


def _shares(one: PhaseProgress, pools: PoolTree) -> tuple[ShareKey, ...]:
    return pools.shares(one.job.pool, one.phase.kind)


class _Standing:
    """The service that jobs have attained, and their virtual finish, if the allocator reads it.

    All jobs are present at time 0, so that the virtual finish never changes.
    """

    def __init__(
        self,
        phases: Iterable[PhaseProgress],
        jobs: Sequence[Job],
        cluster: Cluster,
        pools: PoolTree,
        allocator: Allocator,
    ) -> None:
        self.phases = _by_job(phases)
        self.attained: dict[str, float] = {}
        self.finish: Mapping[str, float] = {}
        if reads_service(allocator):
            self.attained = dict.fromkeys([job.id for job in jobs], 0.0)
        if reads_finish(allocator):
            slots = sum(cluster.capacity.values())
            sized = [Sized(job, job.work or 0.0, 0.0) for job in jobs]
            self.finish = advanced(VirtualTime(0.0, slots), sized, pools, 0.0, slots).finish


def _share(
    ready: Sequence[PhaseProgress],
    cluster: Cluster,
    pools: PoolTree,
    allocator: Allocator,
    now: float,
    standing: _Standing,
) -> tuple[list[float], float]:
    """The slots of each ready phase, and for how long they stay right."""
    numbers: dict[str, list[int]] = {}
    for number, one in enumerate(ready):
        numbers.setdefault(cluster.slot_kind(one.phase.kind), []).append(number)
    claims = {
        kind: with_standing(
            claims_of_progress(
                [ready[n] for n in numbers[kind]],
                capacity,
                cluster,
                pools,
                now,
                numbers[kind],
                standing.phases,
            ),
            standing.attained,
            standing.finish,
        )
        for kind, capacity in cluster.capacity.items()
        if kind in numbers
    }
    shares, length = [0.0] * len(ready), inf
    for kind, of_kind in share_all(allocator, claims, is_whole=True).items():
        if reads_service(allocator):
            length = min(length, allocator.holds_for(claims[kind], of_kind))
        for n, share in zip(numbers[kind], of_kind, strict=True):
            shares[n] = share
    return shares, max(length, ROUNDING * now)  # An instant must differ from the last one.


def claims_of_progress(
    ready: Sequence[PhaseProgress],
    capacity: int,
    cluster: Cluster,
    pools: PoolTree,
    now: float = 0.0,
    place: Sequence[int] = (),
    phases: Mapping[str, Sequence[PhaseProgress]] | None = None,
) -> Claims:
    """The claims of ready phases on one kind of slot.

    phases  all phases of each job; by default the ready ones are all
    """
    of_job = _by_job(ready) if phases is None else phases
    return build_claims(
        capacity,
        [(one.job, one.phase) for one in ready],
        tasks_left=lambda job: sum(map(_tasks_left, of_job[job])),
        max_share=[min(one.phase.slots_most, capacity) for one in ready],
        paths=[_shares(one, pools) for one in ready],
        pools=pools,
        cluster=cluster,
        now=now,
        work=[one.left for one in ready],
        place=place,
    )


def _by_job(phases: Iterable[PhaseProgress]) -> dict[str, list[PhaseProgress]]:
    found: dict[str, list[PhaseProgress]] = {}
    for one in phases:
        found.setdefault(one.job.id, []).append(one)
    return found


def _tasks_left(one: PhaseProgress) -> int:
    """Its unfinished tasks, as if they ran one after the other."""
    return ceil(one.phase.tasks.count * one.left / one.work)
