"""UWFQ: jobs in the order in which a reference that is fair to users would complete them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import ClassVar, NamedTuple

from slotwise.core.decisions import VirtualEnd, VirtualJob, VirtualTime, VirtualUser
from slotwise.core.job import Job
from slotwise.core.pools import PoolTree
from slotwise.core.snapshot import Snapshot
from slotwise.core.tolerances import CLOSE
from slotwise.policy.allocator import Claims
from slotwise.policy.claims import with_measuring
from slotwise.policy.fair import in_turn
from slotwise.policy.grant import grant


class Uwfq:
    """Slots beyond the min shares go to jobs by virtual finish (UWFQ, arXiv 2510.15485).

    The virtual finish comes from a fluid reference, in which users (pools) share all slots by
    weight, and each serves its jobs one after another, in the order in which sharing among them
    would complete them. In a pool of policy `fifo` its jobs take the places of the pool in
    their order of service. The phases of a job are served in their order. Unseen phases get a
    slot to be measured, as under FLEX. O(J log J).

    If sizes are exact, all jobs can use all slots and none overtakes another of its user, no
    job completes later than in the reference plus two tasks (docs/algorithms/uwfq.md).
    """

    reads_work: ClassVar[bool] = True
    reads_finish: ClassVar[bool] = True
    phase_seconds: ClassVar[float] = 1e-5
    keeps_min_shares: ClassVar[bool] = True

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim."""
        claims = with_measuring(claims)
        finish = list(claims.finish) or [0.0] * len(claims)
        jobs: dict[int, dict[str, list[int]]] = {}  # The claims of each job, by pool.
        for claim in in_turn(claims):
            pool, job = claims.group[claim], claims.owner[claim][0].id
            if claims.groups[pool].policy == "fifo":
                jobs.setdefault(pool, {}).setdefault(job, []).append(claim)
        for of_pool in jobs.values():
            places = sorted([finish[members[0]] for members in of_pool.values()])
            for members, place in zip(of_pool.values(), places, strict=True):
                for claim in members:
                    finish[claim] = place
        return grant(claims, sorted(range(len(claims)), key=finish.__getitem__))


class Sized(NamedTuple):
    """A job with its estimated work in all and the service that it has attained."""

    job: Job
    size: float
    attained: float


def virtual_time(snapshot: Snapshot) -> VirtualTime:
    """The reference now, by what the last `Reallocate` remembers. O(J log J) if n jobs ended.

    Jobs that came since then begin now. The sizes of real jobs follow their estimates; the
    others keep their last one.
    """
    now, jobs = snapshot.now, []
    for phases in snapshot.jobs_left():
        attained = sum([phase.attained(now) for phase in phases])
        left = sum([phase.work_left(now) for phase in phases])
        jobs.append(Sized(phases[0].job, attained + left, attained))
    slots = sum(snapshot.capacity(kind) for kind in snapshot.cluster.capacity)
    before = snapshot.virtual or VirtualTime(now, slots)
    return advanced(before, jobs, snapshot.pools, now, slots)


def advanced(
    before: VirtualTime, jobs: Sequence[Sized], pools: PoolTree, now: float, slots: int
) -> VirtualTime:
    """The reference at a later instant, when these jobs are not over in reality."""
    real = {one.job.id: one for one in jobs}
    served = before.slots * (now - before.at)
    users = {
        user.name: _User(
            user.name,
            user_weight(pools, user.name),
            user.begun,
            user.clock,
            [_updated(one, real, served) for one in user.jobs],
        )
        for user in before.users
    }
    late = dict(before.late)
    known = {one.job for user in users.values() for one in user.jobs} | late.keys()
    left = sum([one.size - one.attained for name, one in real.items() if name in known])
    _shorten(users, real, before.now, left + served)
    reached = _advance(users, before.now, served, late)
    late = {name: end for name, end in late.items() if name in real}
    known = {one.job for user in users.values() for one in user.jobs}
    for one in jobs:
        name, over = one.job.id, 0.0
        if name in late:
            if one.size <= late[name].size * (1 + CLOSE):
                continue
            over = late.pop(name).size  # It was underestimated: the rest comes now.
        elif name in known:
            continue
        pool = one.job.pool
        user = users.setdefault(pool, _User(pool, user_weight(pools, pool), reached, 0.0, []))
        weight = one.job.share_weight
        size = one.size - over
        user.jobs.append(VirtualJob(name, user.clock, size, weight, one.attained, over))
    finish = {name: end.finish for name, end in late.items()}
    for user in users.values():
        finish.update((name, at) for name, at in user.finishes() if name in real)
    kept = tuple(user.frozen() for user in users.values())
    return VirtualTime(now, slots, reached, kept, late, finish)


def user_weight(pools: PoolTree, name: str) -> float:
    """The weight of a pool among all users: of its pool at the top, times its part of that.

    Virtual time may continue for jobs of a pool that is over and was removed: that counts 1.
    """
    weight = 1.0
    for pool in pools.path(name) if name in pools else ():
        weight *= pool.weight or 1.0  # Without one it gets its min share only.
        if pool.parent is not None:
            siblings = [one.weight for one in pools.values() if one.parent == pool.parent]
            weight /= sum(siblings) or 1.0
    return weight


def _updated(one: VirtualJob, real: Mapping[str, Sized], served: float) -> VirtualJob:
    """The job with its present estimate; if it is over, with the work that it can have had."""
    now = real.get(one.job)
    if now is None:
        size = min(one.size, max(0.0, one.attained + served - one.before))
        return one._replace(size=size, attained=one.before + size)
    return one._replace(size=max(0.0, now.size - one.before), attained=now.attained)


def _shorten(
    users: Mapping[str, _User], real: Mapping[str, Sized], reached: float, most: float
) -> None:
    """Let jobs that are over have less work, so that users have at most this much left.

    The reference uses all slots all the time, so that it never has more left than reality.
    More is left of estimates that were too large, and would stay for as long as slots are busy.
    """
    over = [one for user in users.values() for one in user.jobs if one.job not in real]
    excess = sum([max(0.0, user.end - reached) * user.weight for user in users.values()]) - most
    total = sum([one.size for one in over])
    if excess <= CLOSE * most or not total:
        return
    part = max(0.0, 1 - excess / total)
    for user in users.values():
        user.jobs = [
            one if one.job in real else one._replace(size=one.size * part) for one in user.jobs
        ]


@dataclass(slots=True)
class _User:
    """A user of the reference while time advances; the fields are those of `VirtualUser`."""

    name: str
    weight: float
    begun: float
    clock: float
    jobs: list[VirtualJob]

    @property
    def end(self) -> float:
        """The virtual time at which all of its jobs are complete."""
        return self.begun + sum([one.size for one in self.jobs]) / self.weight

    def finishes(self) -> Iterable[tuple[str, float]]:
        """Its jobs with their virtual finish, one after another."""
        total = 0.0
        for one in sorted(self.jobs, key=_due):
            total += one.size
            yield one.job, self.begun + total / self.weight

    def serve(self, service: float) -> list[VirtualJob]:
        """Divide this service among the jobs by weight; those that it completes, in order."""
        waiting = sorted(self.jobs, key=_due)
        weights = list(accumulate(one.weight for one in reversed(waiting)))
        number = 0
        for number, one in enumerate(waiting):
            weight = weights[-1 - number]  # Of this job and those behind it.
            needed = max(0.0, _due(one) - self.clock) * weight
            if needed > service:
                self.clock += service / weight
                break
            service -= needed
            self.clock = max(self.clock, _due(one))
        else:
            number = len(waiting)
        self.jobs = waiting[number:]
        return waiting[:number]

    def frozen(self) -> VirtualUser:
        """The user as a value."""
        return VirtualUser(self.name, self.begun, self.clock, tuple(self.jobs))


def _due(one: VirtualJob) -> float:
    """The clock of its user at which sharing among the user's jobs completes the job."""
    return one.begun + one.size / one.weight


def _advance(
    users: dict[str, _User], reached: float, service: float, late: dict[str, VirtualEnd]
) -> float:
    """Serve all users by weight, drop those whose jobs are complete; the virtual time then."""
    while users:
        weight = sum([user.weight for user in users.values()])
        first = min(user.end for user in users.values())
        step = max(0.0, min(service / weight, first - reached))
        is_last = service / weight <= step
        reached += step
        service -= step * weight
        for user in list(users.values()):
            is_over = user.end <= reached
            for one in user.serve(inf if is_over else step * user.weight):
                user.begun += one.size / user.weight
                late[one.job] = VirtualEnd(user.begun, one.before + one.size)
            if not user.jobs:
                del users[user.name]
        if is_last:
            break
    return reached
