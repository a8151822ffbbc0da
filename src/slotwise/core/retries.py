"""When a failed task may run again, how long an attempt may run, how often jobs are stopped."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from math import inf
from typing import Annotated

from slotwise.core.errors import MAX_TIME, MAX_WHOLE, MIN_NUMBER, Limits

ATTEMPTS_MAX = 4
"""The number of attempts of a task before its job fails."""

LOSSES_MAX = 16
"""The number of times that a task may lose its slot, or its output, before its job fails."""

RETRY_DELAY_MAX = 3600.0
"""Seconds up to which the delay before an attempt doubles, before its jitter."""

JITTER = 0.5
"""The largest part by which a delay is longer, so that not all tasks run again at once."""

STOPS_MAX = 1000
"""The largest limit of stops within an hour, and the number of stops remembered of a job."""

HOUR = 3600.0

RETRY_DELAY = Limits(0, RETRY_DELAY_MAX, f"give seconds from 0 to {RETRY_DELAY_MAX:g}")
TIME_LIMIT = Limits(MIN_NUMBER, MAX_TIME, f"give seconds > 0, at most {MAX_TIME:g}")

Attempts = Annotated[int, Limits(1, MAX_WHOLE, "give a whole number >= 1", whole=True)]
RetryDelay = Annotated[float, RETRY_DELAY]
TimeLimit = Annotated[float, TIME_LIMIT]
StopsPerHour = Annotated[
    int, Limits(0, STOPS_MAX, f"give a whole number from 0 to {STOPS_MAX}", whole=True)
]


def delay_of(retry_delay: float, failures: int, seed: object, *attempt: str | int) -> float:
    """The seconds from the failure of an attempt until its task may run again.

    They double with each of the `failures` of the task, up to `RETRY_DELAY_MAX`. The jitter
    makes them up to half as long again. It depends only on the seed and on what names the
    attempt that has failed: job, phase, task and number.
    """
    delay = retry_delay
    for _ in range(failures - 1):
        if delay >= RETRY_DELAY_MAX or not delay:
            break
        delay *= 2
    name = "\0".join(map(str, (seed, *attempt))).encode("utf-8", "surrogatepass")
    drawn = int.from_bytes(blake2b(name, digest_size=8).digest()) / 2**64
    return min(delay, RETRY_DELAY_MAX) * (1 + JITTER * drawn)


def exceeded(time_limit: float) -> str:
    """The reason why an attempt has failed that ran for longer than this."""
    for unit, seconds in (("h", 3600), ("min", 60)):
        if time_limit % seconds == 0:
            return f"exceeded its time limit of {time_limit / seconds:.0f} {unit}"
    return f"exceeded its time limit of {time_limit:g} s"


class RecentStops:
    """The stops of jobs for pools, each for an hour; of each job at most the last `STOPS_MAX`.

    An hour after an instant counts no more as within the hour.
    """

    def __init__(self) -> None:
        self._over: dict[str, deque[float]] = {}  # when an hour has passed since each stop

    @property
    def jobs(self) -> Iterable[str]:
        """The jobs that were stopped, and are not forgotten."""
        return self._over.keys()

    def note(self, job: str, now: float) -> None:
        """A task or a gang of a job is asked to stop."""
        self._over.setdefault(job, deque(maxlen=STOPS_MAX)).append(now + HOUR)

    def forget(self, job: str) -> None:
        """A job is over."""
        self._over.pop(job, None)

    def left(self, job: str, stops_max: int, now: float) -> int:
        """How often a job may be stopped now, with at most `stops_max` stops an hour."""
        return max(0, stops_max - len(self._within_hour(job, now)))

    def more_from(self, job: str, stops_max: int, now: float) -> float:
        """The next instant from which a job may be stopped more often; inf if there is none."""
        recent = self._within_hour(job, now)
        return recent[max(0, len(recent) - stops_max)] if recent and stops_max else inf

    def _within_hour(self, job: str, now: float) -> deque[float]:
        """Those of a job that count. Others are dropped."""
        recent = self._over.get(job, deque[float]())
        while recent and recent[0] <= now:
            recent.popleft()
        return recent
