"""Jobs that wait for other jobs: what is allowed, and which of them still wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Protocol, TypeVar

from slotwise.core.errors import InputError, suggestion
from slotwise.core.job import Job

MAX_OVER = 100_000
"""The number of jobs that are over and still known to jobs that arrive later."""

CANCELLED = "cancelled"
"""The reason why a job failed that a user cancelled."""

MAX_NAMES = 10
"""The maximum number of jobs that a message names."""


class Dependent(Protocol):
    """A job in any form, with what it waits for."""

    @property
    def id(self) -> str:
        """Its name."""
        ...

    @property
    def arrival(self) -> float:
        """Seconds."""
        ...

    @property
    def predecessors(self) -> frozenset[str]:
        """The jobs that it waits for."""
        ...


D = TypeVar("D", bound=Dependent)


def in_order(jobs: Sequence[D]) -> list[D]:
    """The jobs in their order, but each after all jobs of these that it waits for."""
    if not any(job.predecessors for job in jobs):
        return list(jobs)
    by_id = {job.id: job for job in jobs}
    found: dict[str, D] = {}
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


def check_dependencies(jobs: Sequence[Dependent], known: Iterable[str] = ()) -> None:
    """InputError for the first fault that `dependency_faults` finds."""
    for _, what in dependency_faults(jobs, known):
        raise InputError(what)


def dependency_faults(
    jobs: Sequence[Dependent], known: Iterable[str] = ()
) -> Iterator[tuple[str, str]]:
    """The jobs that wait for an unknown one, or for themselves by way of others.

    Yields the id of a job and what is wrong. `known` are other jobs, for which these may wait.
    """
    if not any(job.predecessors for job in jobs):
        return
    by_arrival = sorted(jobs, key=lambda job: job.arrival)
    place = {job.id: number for number, job in enumerate(by_arrival)}
    names = dict.fromkeys([*place, *known])
    for job in jobs:
        for name in sorted(job.predecessors):
            if name not in names:
                others = [other for other in names if other != job.id]
                yield (
                    job.id,
                    f"job {job.id!r} waits for job {name!r}, which does not exist;"
                    f" {suggestion(name, others, _some(others))}",
                )
            elif place[job.id] - place.get(name, place[job.id]) > MAX_OVER:
                yield (
                    job.id,
                    f"job {job.id!r} waits for job {name!r}, which arrives more than"
                    f" {MAX_OVER} jobs before it; order them by their arrivals",
                )
    try:
        TopologicalSorter({job.id: job.predecessors for job in jobs}).prepare()
    except CycleError as error:
        circle = error.args[1][1:]
        first = circle.index(min(circle, key=place.__getitem__))
        circle = circle[first:] + circle[:first]
        yield (
            circle[0],
            f"jobs {', '.join(map(repr, circle))} wait for each other in a circle; remove one"
            " `after`",
        )


def _some(jobs: Sequence[str]) -> str:
    if not jobs:
        return "there are no other jobs"
    more = f" and {len(jobs) - MAX_NAMES} more" if len(jobs) > MAX_NAMES else ""
    return f"known jobs: {', '.join(jobs[:MAX_NAMES])}{more}"


def check_elements(jobs: Iterable[Job], known: Mapping[str, Job]) -> None:
    """InputError if the tasks of a job cannot wait for those of `after_each`, one for one.

    `known` has these jobs and the others that they wait for, except those that are over.
    """
    for job in jobs:
        for name in sorted(job.after_each & known.keys()):
            other = known[name]
            if len(other.phases) > 1 or other.phases[0].grows:
                raise InputError(
                    f"job {job.id!r}: after_each names job {name!r}, which is not one array of"
                    " tasks; name it in after"
                )
            count, wanted = other.phases[0].tasks.count, job.phases[0].tasks.count
            if count != wanted:
                raise InputError(
                    f"job {job.id!r} has {wanted} tasks, and after_each names job {name!r} with"
                    f" {count}; make them equal, or name it in after"
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
                return predecessor_failed(name)
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

    def end(self, name: str, reason: str, doomed: dict[str, str]) -> list[str]:
        """A job is over; the reason why it failed, or an empty string.

        Returns the jobs that wait no more. Those that cannot run are added to `doomed`.
        """
        self._outcomes[name] = reason
        if len(self._outcomes) > self._over_most:
            del self._outcomes[next(iter(self._outcomes))]
        released = []
        for job in self._dependents.pop(name, ()):
            if reason and job.after_failed == "cancel":
                doomed.setdefault(job.id, predecessor_failed(name))
            elif self.release(job, name):
                released.append(job.id)
        return released

    def release(self, job: Job, name: str) -> bool:
        """A job need not wait for `name` any longer. Whether it now waits for no job."""
        waits = self.waits.get(job.id)
        if waits is None:
            return False
        waits.discard(name)
        if not waits:
            del self.waits[job.id]
        return not waits


def was_cancelled(job: Job, reason: str) -> bool:
    """Whether a job that failed for this reason was cancelled: by a user, or with another."""
    return reason == CANCELLED or reason in map(predecessor_failed, job.predecessors)


def predecessor_failed(name: str) -> str:
    """The reason why a job cannot run that waits for this one."""
    return f"job {name!r}, for which it waits, has failed"
