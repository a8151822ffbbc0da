"""Changes of jobs, pools and the objective of a running session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from slotwise.core.cluster import Host
from slotwise.core.errors import (
    InputError,
    check_number,
    check_seconds,
    check_text,
    shown,
    suggestion,
)
from slotwise.core.events import JobChanged, ObjectiveChanged, PoolsChanged, SchedulerChanged
from slotwise.core.job import Job
from slotwise.core.objective import Objective
from slotwise.core.pools import (
    Pool,
    PoolsStated,
    PoolTree,
    check_fits,
    pools_of,
    unknown_resources,
)
from slotwise.policy.promises import move_refused
from slotwise.policy.scheduler import ALLOCATORS, BACKFILLINGS, QUEUEINGS
from slotwise.running import warn_user
from slotwise.sessions.futures import Future
from slotwise.sessions.intake import SessionCore
from slotwise.workload.dates import seconds_until


@dataclass(frozen=True, slots=True)
class JobChanges:
    """The properties of a job that change; None: it stays. `due` is in seconds from now."""

    priority: str | None
    weight: float | None
    pool: str | None
    due: float | None


def checked_changes(
    host: object,
    future: Future[Any],
    priority: str | None,
    weight: float | None,
    pool: str | None,
    deadline: float | str | None,
) -> JobChanges:
    """Check the arguments of `Session.change`; `host` is the core of the session."""
    if not isinstance(future, Future) or not future._is_of(host):
        raise InputError(
            f"{future!r} is not a future of this session; expected a result of `submit`, `run`"
            " or `command`"
        )
    for what, text in (("pool", pool), ("priority", priority)):
        if text is not None:
            check_text(what, text)
    if weight is not None:
        check_number("weight", weight)
    due = seconds_until("deadline", deadline)
    if due is not None:
        check_seconds("deadline", due)
    return JobChanges(priority, weight, pool, due)


def change_job(
    intake: SessionCore,
    future: Future[Any],
    priority: str | None,
    weight: float | None,
    pool: str | None,
    deadline: float | str | None,
) -> None:
    """Change the properties of a job that are not None. See `Session.change`."""
    given = checked_changes(intake, future, priority, weight, pool, deadline)
    apply_changes(intake, future, given)


def apply_changes(intake: SessionCore, future: Future[Any], given: JobChanges) -> None:
    """Change a job in a session. InputError for what it cannot have; none if it is over."""
    if given.pool is not None:
        intake.warn_of_pool(given.pool)
    state = intake.state

    def change() -> None:
        for phase in state.phases_of(future.job)[:1]:
            old, now = phase.job, intake.now
            event = JobChanged(
                now,
                old.id,
                old.priority if given.priority is None else given.priority,
                old.weight if given.weight is None else given.weight,
                old.pool if given.pool is None else given.pool,
                old.deadline if given.due is None else now + given.due,
            )
            pools = state.pools.with_pools([event.pool])
            moved = event.applied_to(old)
            check_fits(moved, state.cluster, pools)
            if moved.pool != old.pool and (why := move_refused(state, moved)):
                raise InputError(f"job {old.id!r} has a promise: {why}")
            intake.loop.on_event(event)

    intake.loop.ask(change)


def set_pools(intake: SessionCore, pools: PoolsStated) -> None:
    """Replace the pools. See `Session.set_pools`."""
    given = pools_of(pools)

    def known() -> list[str]:
        hosts, left = intake.state.cluster.hosts, intake.jobs_left()
        return list(known_resources(hosts, left, intake.pools.values()))

    warn_of_resources(given, intake.ask(known))

    def change() -> None:
        with intake.lock:
            tree = PoolTree(given).on(intake.state.cluster)
            jobs = intake.jobs_left()
            tree.with_pools(sorted({job.pool for job in jobs}))
            for job in jobs:
                check_fits(job, intake.state.cluster, tree)
            intake.pools = tree
            intake.loop.on_event(PoolsChanged(intake.now, tuple(tree.values())))

    intake.loop.ask(change)


def warn_of_resources(pools: Iterable[Pool], known: Iterable[str]) -> None:
    """Warn of limits of resources that nothing has or requests yet: a host with it may come."""
    for what in unknown_resources(pools, known):
        warn_user(what)


def known_resources(
    hosts: Iterable[Host], jobs: Iterable[Job] = (), pools: Iterable[Pool] = ()
) -> Iterator[str]:
    """The resources that hosts have, jobs request or pools limit."""
    for host in hosts:
        yield from host.resources
    for job in jobs:
        for phase in job.phases:
            yield from phase.needs
    for pool in pools:
        yield from pool.resources_max


def set_scheduler(intake: SessionCore, name: str) -> None:
    """Replace the scheduler. See `Session.set_scheduler`."""
    check_replaces(intake.loop.scheduler_name, name)

    def change() -> None:
        intake.loop.scheduler_name = name
        intake.loop.on_event(SchedulerChanged(intake.now, name))

    intake.loop.ask(change)


def check_session_scheduler(name: str) -> None:
    """InputError unless it is the name of a scheduler that a session can have."""
    known = (*ALLOCATORS, *BACKFILLINGS)
    if name in QUEUEINGS:
        raise InputError(
            f"{name} needs the work of all tasks, and that of calls is unknown;"
            f" expected one of {', '.join(known)} for a session"
        )
    if name not in known:
        raise InputError(f"unknown scheduler {shown(name)}; {suggestion(name, known)}")


def check_replaces(old: str, new: str) -> None:
    """InputError unless a session with the scheduler `old` can change to `new`."""
    check_session_scheduler(new)
    if new in BACKFILLINGS or old in BACKFILLINGS:
        raise InputError(
            f"{old} cannot be replaced by {new}: a session backfills from its beginning to its"
            " end, or never; begin another session"
        )


def set_objective(intake: SessionCore, objective: Objective | str) -> None:
    """Replace the objective. See `Session.set_objective`."""
    named = Objective.of(objective)
    event = ObjectiveChanged(intake.now, named.penalty, named.aggregate)

    def change() -> None:
        with intake.lock:
            named.check(intake.jobs_left())
            intake.objective = named
            intake.loop.on_event(event)

    intake.loop.ask(change)
