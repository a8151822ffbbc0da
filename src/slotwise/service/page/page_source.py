"""What the page shows of a scheduler at an instant, read from its state by one question.

A snapshot is sections of plain values by key, so that `page_stream.py` sends what has changed.
Instants are Unix seconds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

from slotwise.core.events import TaskFailed, TaskKilled
from slotwise.core.phase_state import PhaseState, phases_below
from slotwise.core.pool_state import PoolState
from slotwise.core.resources import in_units
from slotwise.core.state import State
from slotwise.forecast.eta import Eta, Range
from slotwise.insight.why import why_now
from slotwise.policy.steady import steady_shares
from slotwise.sessions.intake import SessionCore

Section = dict[str, Any]
"""Plain values by key."""

LANES_MAX = 256
"""Of more slots the page draws those of pools, not the task in each."""

ROWS_MAX = 200
"""The most running jobs, hosts, and open jobs of a user, in a snapshot."""

OWN_MAX = 50
"""The most open jobs of a user that are shown."""

AHEAD_MAX = 3
"""The most jobs before a waiting one that are named."""

REASON_SECONDS = 0.001
"""For how long a snapshot finds why jobs wait. Others keep their last reasons."""


class SlotAttempt(NamedTuple):
    """A task that runs."""

    host: str
    slots: int
    job: str
    pool: str
    phase: str
    task: int
    attempt: int
    begun: float


@dataclass(frozen=True, slots=True)
class PageSample:
    """The slots of pools, used and of their shares, and used resources, at an instant."""

    at: float
    pools: Mapping[str, tuple[int, float]]
    resources: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class PageSnapshot:
    """A scheduler at an instant.

    sections  `facts`, `pools`, `hosts` and `live` (jobs that run, with numbers only)
    own       the open jobs of each user that was asked for, by job
    running   the tasks in the slots; empty if there are more than `LANES_MAX` slots
    ended     the attempts that have lately failed or were stopped, and which of both
    """

    sample: PageSample
    sections: Mapping[str, Section]
    own: Mapping[str, Section]
    running: Sequence[SlotAttempt]
    ended: Mapping[tuple[str, str, int, int], str]


class PageSource(Protocol):
    """A scheduler that can be shown."""

    def about(self) -> dict[str, Any]:
        """What does not change: its `kind`, its `title`, and what the page `can` do."""
        ...

    def sample(self) -> PageSample:
        """The pools now. Costs little: O(pools and hosts)."""
        ...

    def snapshot(self, users: Collection[str]) -> PageSnapshot:
        """All that is shown now, with the open jobs of some users. O(jobs and slots)."""
        ...


@dataclass(frozen=True, slots=True)
class OwnJob:
    """What the state does not know of an open job of a user."""

    id: str
    name: str
    submitted: float | None = None
    pool: str = ""  # its own while it is held, and before it arrives


class StateReader:
    """Reads snapshots from a state, in the thread to which this belongs.

    `held` is the pool of jobs on hold, if the state has one.
    """

    def __init__(self, state: State, epoch: float, held: str = "") -> None:
        self._state, self.epoch, self._held = state, epoch, held
        self._reasons: dict[str, str] = {}
        self._steady: tuple[object, dict[str, float]] = (None, {})
        self._places: dict[str, tuple[int, list[str]]] = {}
        self._next_places = 0.0

    def sample(self) -> PageSample:
        """The slots that pools use and should have, and resources in use."""
        pools: dict[str, list[float]] = {name: [0, 0.0] for name in self._state.pools}
        for share in self._shares():
            total = pools.setdefault(share.name, [0, 0.0])
            total[0] += share.running
            total[1] += share.share
        pools.pop(self._held, None)
        return PageSample(
            time.time(),
            {name: (int(used), round(share, 2)) for name, (used, share) in pools.items()},
            self._resources(),
        )

    def snapshot(
        self,
        own: Mapping[str, Sequence[OwnJob]],
        scheduler: str,
        ended: Iterable[TaskFailed | TaskKilled] = (),
    ) -> PageSnapshot:
        """All that is shown; see `PageSource.snapshot`."""
        state = self._state
        ready = [phase for kind in state.cluster.capacity for phase in state.ready(kind)]
        busy = [phase for phase in ready if phase.launches]
        running = dict.fromkeys(phase.id.job for phase in busy)
        jobs, active = _jobs_by_pool(ready), _jobs_by_pool(busy)
        jobs.update(state.awaiting_by_pool)
        waiting = len(state.awaiting_jobs)
        slots = sum(sum(host.slots.values()) for host in state.cluster.hosts)
        sample = self.sample()
        facts = {
            "scheduler": state.scheduler or scheduler,
            "slots": slots,
            "busy": sum([phase.running for phase in busy]),
            "running": len(running),
            "queued": jobs.total() - active.total() - jobs[self._held] + active[self._held],
            "waiting": waiting,
            "held": jobs[self._held] - active[self._held],
            "hosts": len(state.cluster.hosts),
        }
        return PageSnapshot(
            sample,
            {
                "facts": facts,
                "pools": self._pools(sample, jobs, active),
                "hosts": self._hosts(),
                "live": {
                    job: list(_numbers(state.phases_of(job)))
                    for job in islice(running, ROWS_MAX)
                },
            },
            self._own(own, running, scheduler),
            [] if slots > LANES_MAX else list(self._attempts(busy)),
            {
                (*one.phase, one.task, one.attempt): (
                    "stopped" if isinstance(one, TaskKilled) else "failed"
                )
                for one in ended
            },
        )

    def first_jobs(self) -> list[OwnJob]:
        """The first of all jobs, without those that have not arrived."""
        jobs = islice(self._state.jobs_left(), ROWS_MAX)
        waiting = islice(self._state.not_admitted, OWN_MAX)
        return [OwnJob(name, "") for name in (*(one[0].job.id for one in jobs), *waiting)]

    def numbers(self, job: str) -> tuple[int, int, int, int]:
        """Of a job: tasks, done ones, running ones, and the slots that it holds."""
        return _numbers(self._state.phases_of(job))

    def _shares(self) -> Iterable[PoolState]:
        kinds = self._state.cluster.capacity
        return chain.from_iterable(self._state.shares(kind) for kind in kinds)

    def _resources(self) -> dict[str, tuple[float, float]]:
        """What is used of each resource, and all of it, on hosts that respond."""
        total, free = Counter[str](), Counter[str]()
        spare, lost = self._state.spare, self._state.lost
        for host in self._state.cluster.hosts:
            if host.name not in lost:
                for name, amount in host.resources.items():
                    total[name] += amount
                    free[name] += spare.amount(host.name, name)
        return {name: _used(name, total[name], free[name]) for name in sorted(total)}

    def _pools(
        self, sample: PageSample, jobs: Counter[str], active: Counter[str]
    ) -> dict[str, Any]:
        """The pools, each with the jobs of those below it."""
        state = self._state
        least, demand = Counter[str](), Counter[str]()
        for share in self._shares():
            least[share.name] += int(share.min_share)
            demand[share.name] += share.demand
        all_jobs, all_active = Counter[str](), Counter[str]()
        for counts, sums in ((jobs, all_jobs), (active, all_active)):
            for name, count in counts.items():
                for pool in state.pools.path(name):
                    sums[pool.name] += count
        steady, limits = self._steady_shares(), self._limits()
        found = {}
        for name, pool in state.pools.items():
            if name == self._held:
                continue
            most = sum(pool.slots_max.values()) if pool.slots_max else None
            used, share_now = sample.pools.get(name, (0, 0.0))
            found[name] = {
                "parent": pool.parent,
                "weight": pool.weight,
                "least": least[name] or sum(pool.slots_min.values()),
                "most": most,
                "share": share_now,
                "steady": round(steady.get(name, 0.0), 2),
                "used": used,
                "demand": demand[name],
                "running": all_active[name],
                "queued": all_jobs[name] - all_active[name],
                **({"limits": limits[name]} if name in limits else {}),
            }
        return found

    def _limits(self) -> dict[str, dict[str, tuple[float, float]]]:
        """What pools hold of the resources that they limit, and may hold."""
        found: dict[str, dict[str, tuple[float, float]]] = {}
        for limit in (one for share in self._shares() for one in share.own_limits):
            held, most = in_units(limit.name, limit.held), in_units(limit.name, limit.most)
            found.setdefault(limit.pool, {})[limit.name] = held, most
        return found

    def _steady_shares(self) -> Mapping[str, float]:
        """The steady shares by pool; computed again when pools or slots have changed."""
        state = self._state
        capacity = {kind: state.capacity(kind) for kind in state.cluster.capacity}
        key = (state.pools, capacity)
        if self._steady[0] != key:
            found = Counter[str]()
            for kind, slots in capacity.items():
                shares = steady_shares(state.pools, slots, kind, state.cluster)
                for share, amount in shares.items():
                    found[share.pool] += amount  # type: ignore[assignment]
            self._steady = key, dict(found)
        return self._steady[1]

    def _hosts(self) -> dict[str, Any]:
        """The hosts, those first that need a look; at most `ROWS_MAX`."""
        state = self._state
        free = {kind: state.free(kind) for kind in state.cluster.capacity}
        found = {}
        hosts = sorted(state.cluster.hosts, key=lambda host: host.name not in state.lost)
        for host in islice(hosts, ROWS_MAX):
            name, slots = host.name, sum(host.slots.values())
            is_lost, is_leaving = name in state.lost, name in state.leaving
            idle = sum(free[kind].get(name, 0) for kind in host.slots)
            found[name] = {
                "slots": slots,
                "busy": slots - idle,
                "speed": host.speed,
                "state": "draining" if is_leaving else "lost" if is_lost else "present",
                "resources": {
                    kind: _used(kind, total, state.spare.amount(name, kind))
                    for kind, total in host.resources.items()
                },
            }
        return found

    def _attempts(self, busy: Iterable[PhaseState]) -> Iterable[SlotAttempt]:
        for phase in busy:
            for launch, begun, _ in phase.launches.values():
                yield SlotAttempt(
                    launch.host,
                    phase.width,
                    phase.job.id,
                    phase.job.pool,
                    launch.phase.phase,
                    launch.task,
                    launch.attempt,
                    round(self.epoch + begun, 3),
                )

    def _own(
        self, own: Mapping[str, Sequence[OwnJob]], running: Container[str], scheduler: str
    ) -> dict[str, dict[str, Any]]:
        """The open jobs of users: those that run first, then the oldest."""
        shown = {
            user: [
                self._row(job)
                for job in sorted(jobs, key=lambda job: job.id not in running)[:OWN_MAX]
            ]
            for user, jobs in own.items()
        }
        every = {row["id"]: row for found in shown.values() for row in found}
        self._place({key: row for key, row in every.items() if row["state"] == "queued"})
        self._explain(every, scheduler)
        return {user: {row["id"]: row for row in found} for user, found in shown.items()}

    def _row(self, job: OwnJob) -> dict[str, Any]:
        phases = self._state.phases_of(job.id)
        row: dict[str, Any] = {"id": job.id, "name": job.name, "submitted": job.submitted}
        if not phases:
            return {**row, "state": "waiting", "pool": job.pool, "numbers": [0, 0, 0, 0]}
        pool, numbers = phases[0].job.pool, _numbers(phases)
        state = "running" if numbers[2] else "queued"
        if not numbers[2] and pool == self._held:
            state = "held"
        elif not numbers[2] and job.id in self._state.awaiting_jobs:
            state = "waiting"
        shown = job.pool or pool if pool == self._held else pool
        return {**row, "state": state, "pool": shown, "numbers": list(numbers)}

    def _place(self, rows: Mapping[str, dict[str, Any]]) -> None:
        """Add the positions of queued jobs in their pools, and the jobs before them.

        That is the order in which the jobs get slots now; it changes as jobs come and run.
        Long queues are read less often, for at most a thousandth of the time.
        """
        began = time.perf_counter()
        if began >= self._next_places:
            pools = {row["pool"] for row in rows.values()}
            self._places = {
                job: place for pool in pools for job, place in self._queue(pool, rows)
            }
            self._next_places = began + 1000 * (time.perf_counter() - began)
        for job, row in rows.items():
            row["position"], row["ahead"] = self._places.get(job, (None, []))

    def _queue(
        self, pool: str, wanted: Collection[str]
    ) -> Iterator[tuple[str, tuple[int, list[str]]]]:
        """The places of some of the queued jobs of a pool."""
        state, names = self._state, dict[str, None]()
        if state.awaiting_by_pool.get(pool):
            found = [name for name in state.awaiting_admission if _pool(state, name) == pool]
            names = dict.fromkeys(found)
        for share in self._shares():
            if share.name == pool:
                queued = [phase.id.job for phase in phases_below(share) if not phase.running]
                names = {**dict.fromkeys(queued), **names}
        order = list(names)
        for place, name in enumerate(order):
            if name in wanted:
                yield name, (place + 1, order[max(0, place - AHEAD_MAX) : place])

    def _explain(self, rows: Mapping[str, dict[str, Any]], scheduler: str) -> None:
        """Add why jobs hold no more slots, for those that fit into the time."""
        until = time.perf_counter() + REASON_SECONDS
        reasons = {job: self._reasons[job] for job in rows if job in self._reasons}
        # Those without a reason first, then those that were explained longest ago.
        for job in sorted(rows, key=lambda job: job in reasons):
            if time.perf_counter() > until:
                break
            phases = self._state.phases_of(job)
            wants = next((phase for phase in phases if phase.pending or phase.blocked), None)
            if rows[job]["state"] == "held":
                why = "it is held: release it to let its tasks begin"
            elif not phases:
                why = "it has not arrived yet"
            else:
                why = why_now(self._state, wants or phases[0], scheduler).sentence
            reasons.pop(job, None)
            reasons[job] = why
        self._reasons = reasons
        for job, row in rows.items():
            row["reason"] = reasons.get(job, "")


class CoreSource:
    """The page of a session: all of its jobs are those of the one user."""

    def __init__(self, core: SessionCore, title: str, held: str = "") -> None:
        self._core, self._title = core, title
        self._reader = StateReader(core.state, time.time() - core.now, held)

    def about(self) -> dict[str, Any]:
        """See `PageSource`."""
        return {"kind": "session", "title": self._title, "can": ["cancel"]}

    def sample(self) -> PageSample:
        """See `PageSource`."""
        return self._core.ask(self._reader.sample)

    def snapshot(self, users: Collection[str]) -> PageSnapshot:
        """See `PageSource`."""
        own, core, reader = self.own(users), self._core, self._reader

        def read() -> PageSnapshot:
            name, ended = core.loop.scheduler_name, core.views.bad_ends
            jobs = dict.fromkeys(users, reader.first_jobs()) if own is None else own
            found = reader.snapshot(jobs, name, ended)
            found.sections["facts"]["objective"] = core.objective.penalty
            return found

        found = core.ask(read)
        add_etas(found, core.etas)
        return found

    def own(self, users: Collection[str]) -> Mapping[str, Sequence[OwnJob]] | None:
        """The open jobs of each user, at most `ROWS_MAX`; None if all are of the one user."""
        return None


def add_etas(found: PageSnapshot, etas: Callable[[Iterable[str]], Mapping[str, Eta]]) -> None:
    """Add when the open jobs of users start and end; `etas` has forecasts in Unix seconds.

    Whole seconds, so that few of them change between two snapshots.
    """
    rows = [row for section in found.own.values() for row in section.values()]
    known = etas(row["id"] for row in rows if row["state"] != "held")
    for row in rows:
        if eta := known.get(row["id"]):
            start = None if row["state"] == "running" else eta.start
            row["eta"] = {"start": start and _ends(start), "end": _ends(eta.end)}


def _ends(found: Range) -> dict[str, int | None]:
    low, high = (None if at is None else round(at) for at in found.ends)
    return {"low": low, "high": high}


def _used(name: str, total: int, free: int) -> tuple[float, float]:
    """The used amount of a resource, and all of it: bytes, or numbers of devices and others."""
    return in_units(name, total - free), in_units(name, total)


def _jobs_by_pool(ready: Sequence[PhaseState]) -> Counter[str]:
    """The number of jobs of ready phases in each pool."""
    counts = Counter([one.pool for one in ready if one.job_share is None])
    if counts.total() < len(ready):  # Some jobs have several phases.
        counts.update({one.job_share: one.pool for one in ready if one.job_share}.values())
    found = Counter[str]()
    for pool, count in counts.items():
        found[pool.name] += count
    return found


def _pool(state: State, job: str) -> str:
    return state.phases_of(job)[0].job.pool


def _numbers(phases: Sequence[PhaseState]) -> tuple[int, int, int, int]:
    """Of a job: tasks, done ones, running ones, and the slots that it holds."""
    tasks = done = running = slots = 0
    for phase in phases:
        tasks += phase.phase.tasks.count
        done += phase.done + phase.dropped
        running += len(phase.launches)
        slots += phase.running
    return tasks, done, running, slots
