"""Jobs that wait for other jobs: what is allowed, and which of them still wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from slotwise.core.errors import InputError
from slotwise.core.job import Job

MAX_OVER = 100_000
"""The number of jobs that are over and still known to jobs that arrive later."""


def in_order(jobs: Sequence[Job]) -> list[Job]:
    """The jobs in their order, but each after all jobs of these that it waits for."""
    if not any(job.predecessors for job in jobs):
        return list(jobs)
    by_id = {job.id: job for job in jobs}
    found: dict[str, Job] = {}
    for first in jobs:
        path = [first]
        while path:
            job = path[-1]
            before = [by_id[name] for name in sorted(job.predecessors) if name in by_id]
            if job.id in found or not (missing := [b for b in before if b.id not in found]):
                found.setdefault(job.id, job)
                path.pop()
            else:
                path += reversed(missing)
    return list(found.values())


def check_dependencies(jobs: Sequence[Job], known: Mapping[str, Job | None]) -> None:
    """InputError for a job that waits for an unknown one, or for itself by way of others.

    `known` are other jobs, for which these may wait, too; None for one that is over.
    """
    if not any(job.predecessors for job in jobs):
        return
    by_id: dict[str, Job | None] = {**known, **{job.id: job for job in jobs}}
    place = {job.id: number for number, job in enumerate(sorted(jobs, key=_arrival))}
    for job in jobs:
        for name in sorted(job.predecessors):
            if name not in by_id:
                raise InputError(
                    f"job {job.id!r} waits for job {name!r}, which does not exist;"
                    f" {_known(by_id)}"
                )
            if place[job.id] - place.get(name, place[job.id]) > MAX_OVER:
                raise InputError(
                    f"job {job.id!r} waits for job {name!r}, which arrives more than"
                    f" {MAX_OVER} jobs before it; order them by their arrivals"
                )
        for name in sorted(job.after_each):
            _check_tasks(job, by_id[name])
    try:
        TopologicalSorter({job.id: job.predecessors for job in jobs}).prepare()
    except CycleError as error:
        circle = ", ".join(map(repr, error.args[1][1:]))
        raise InputError(
            f"jobs {circle} wait for each other in a circle; remove one `after`"
        ) from None


def _arrival(job: Job) -> float:
    return job.arrival


def _known(by_id: Iterable[str]) -> str:
    names = [repr(name) for name in by_id]
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"known jobs: {', '.join(names[:10])}{more}"


def _check_tasks(job: Job, other: Job | None) -> None:
    """InputError if the tasks of a job cannot wait for those of another, one for one."""
    if other is None:
        return
    if len(other.phases) > 1 or other.phases[0].grows:
        raise InputError(
            f"job {job.id!r}: after_each names job {other.id!r}, which is not one array of"
            " tasks; use after"
        )
    count, wanted = other.phases[0].tasks.count, job.phases[0].tasks.count
    if count != wanted:
        raise InputError(
            f"job {job.id!r} has {wanted} tasks, and after_each names job {other.id!r} with"
            f" {count}; make them equal, or use after"
        )


class Dependencies:
    """Which of the jobs in progress wait for others, and how the last `over_most` jobs ended.

    Each change costs what it changes.
    """

    def __init__(self, over_most: int) -> None:
        self._over_most = over_most
        self.waits: dict[str, set[str]] = {}  # the jobs that each waiting job waits for
        self._dependents: dict[str, list[Job]] = {}  # by the job that they wait for
        self._outcomes: dict[str, str] = {}  # why each job failed; empty if it is done

    def arrive(self, job: Job) -> str:
        """Note what a job waits for. Returns why it cannot run, or an empty string."""
        for name in sorted(job.predecessors):
            reason = self._outcomes.get(name)
            if reason is None:
                self.waits.setdefault(job.id, set()).add(name)
                self._dependents.setdefault(name, []).append(job)
            elif reason and job.after_failed == "cancel":
                self.forget(job)
                return _failed(name)
        return ""

    def forget(self, job: Job) -> None:
        """Forget what a job waits for. O(jobs that wait for the same ones)."""
        self.waits.pop(job.id, None)
        for name in job.predecessors:
            others = [one for one in self._dependents.pop(name, ()) if one.id != job.id]
            if others:
                self._dependents[name] = others

    def is_over(self, name: str) -> bool:
        """Whether a job has ended, or failed while its tasks may still run."""
        return name in self._outcomes

    def dependents(self, name: str) -> Sequence[Job]:
        """The jobs that arrived and name a job that is not over."""
        return self._dependents.get(name, ())

    def element_done(self, job: Job, name: str) -> bool:
        """A task of `name` is done, and one of a job may begin. Whether it waits no more."""
        return self._release(job, name)

    def end(self, name: str, reason: str, doomed: dict[str, str]) -> list[Job]:
        """A job is over; the reason why it failed, or an empty string.

        Returns the jobs that wait no more. Those that cannot run are added to `doomed`.
        """
        self._outcomes[name] = reason
        if len(self._outcomes) > self._over_most:
            del self._outcomes[next(iter(self._outcomes))]
        released = []
        for job in self._dependents.pop(name, ()):
            if reason and job.after_failed == "cancel":
                doomed.setdefault(job.id, _failed(name))
            elif self._release(job, name):
                released.append(job)
        return released

    def _release(self, job: Job, name: str) -> bool:
        waits = self.waits.get(job.id)
        if waits is None:
            return False
        waits.discard(name)
        if not waits:
            del self.waits[job.id]
        return not waits


def _failed(name: str) -> str:
    return f"job {name!r}, for which it waits, has failed"
