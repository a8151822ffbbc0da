"""Backfilling on one host by the textbook, with lists and brute force: when each job starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, nextafter


@dataclass(frozen=True)
class Rigid:
    """A job of one task: its arrival, slots, and the seconds that it runs and requests."""

    arrival: float
    slots: int
    run: float
    requested: float


@dataclass(frozen=True)
class Course:
    """When each job starts, and at the latest by its first reservation, if it had one."""

    starts: Mapping[int, float]
    promised: Mapping[int, float]


def easy(jobs: Sequence[Rigid], total: int, *, shortest_first: bool) -> Course:
    """EASY: a reservation for the first job that does not fit."""
    starts: dict[int, float] = {}
    promised: dict[int, float] = {}
    for now, queue in _instants(jobs, starts):
        free = total - sum(jobs[n].slots for n in _running(jobs, starts, now))
        while queue and jobs[queue[0]].slots <= free:
            free -= jobs[queue[0]].slots
            starts[queue.pop(0)] = now
        if not queue:
            continue
        head, *rest = queue
        later = sorted(
            (max(starts[n] + jobs[n].requested, now), jobs[n].slots)
            for n in _running(jobs, starts, now)
        )
        shadow, found = now, free
        for end, slots in later:
            if found >= jobs[head].slots and end > shadow:
                break
            shadow, found = end, found + slots
        promised.setdefault(head, shadow)
        extra = found - jobs[head].slots
        if shortest_first:
            rest.sort(key=lambda n: (jobs[n].requested, n))
        for n in rest:
            is_short = now + jobs[n].requested <= shadow
            if jobs[n].slots <= free and (is_short or jobs[n].slots <= extra):
                free -= jobs[n].slots
                extra -= 0 if is_short else jobs[n].slots
                starts[n] = now
    return Course(starts, promised)


def conservative(jobs: Sequence[Rigid], total: int, *, shortest_first: bool) -> Course:
    """A reservation for each waiting job, which later moves to earlier instants only."""
    starts: dict[int, float] = {}
    reserved: dict[int, float] = {}
    promised: dict[int, float] = {}
    for now, queue in _instants(jobs, starts):
        order = sorted(queue, key=lambda n: (jobs[n].requested, n)) if shortest_first else queue
        busy = {
            n: (now, max(starts[n] + jobs[n].requested, nextafter(now, inf)))
            for n in _running(jobs, starts, now)
        }
        known = [n for n in order if n in reserved]
        for n in sorted(known, key=lambda n: (reserved[n], n)):
            busy[n] = _first_gap(jobs, total, busy, n, max(now, reserved[n]))
        for n in [*known, *(n for n in order if n not in reserved)]:
            busy.pop(n, None)
            busy[n] = _first_gap(jobs, total, busy, n, now)
            reserved[n] = busy[n][0]
            promised.setdefault(n, busy[n][0])
        for n in queue:
            if reserved[n] == now:
                starts[n] = now
    return Course(starts, promised)


def _first_gap(
    jobs: Sequence[Rigid],
    total: int,
    busy: Mapping[int, tuple[float, float]],
    job: int,
    after: float,
) -> tuple[float, float]:
    """The first interval from `after` on in which a job fits beside these intervals."""
    for begin in sorted({after, *(end for _, end in busy.values() if end > after)}):
        end = begin + jobs[job].requested
        marks = {begin, *(start for start, _ in busy.values() if begin < start < end)}
        if all(
            sum(jobs[n].slots for n, (s, e) in busy.items() if s <= at < e)
            <= total - jobs[job].slots
            for at in marks
        ):
            return begin, end
    raise AssertionError("each job fits when all others have ended")


def _running(jobs: Sequence[Rigid], starts: Mapping[int, float], now: float) -> list[int]:
    return [n for n, start in starts.items() if now < start + jobs[n].run]


def _instants(jobs: Sequence[Rigid], starts: Mapping[int, float]):
    """Each instant at which jobs arrive or end, and the queue then, by arrival."""
    now = -inf
    while len(starts) < len(jobs):
        ends = [start + jobs[n].run for n, start in starts.items()]
        now = min(at for at in (*ends, *(job.arrival for job in jobs)) if at > now)
        queue = [n for n, job in enumerate(jobs) if job.arrival <= now and n not in starts]
        yield now, sorted(queue, key=lambda n: (jobs[n].arrival, n))
