"""When a failed task may run again, and how long an attempt may run."""

from __future__ import annotations

from hashlib import blake2b
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

RETRY_DELAY = Limits(0, RETRY_DELAY_MAX, f"give seconds from 0 to {RETRY_DELAY_MAX:g}")
TIME_LIMIT = Limits(MIN_NUMBER, MAX_TIME, f"give seconds > 0, at most {MAX_TIME:g}")

Attempts = Annotated[int, Limits(1, MAX_WHOLE, "give a whole number >= 1", whole=True)]
RetryDelay = Annotated[float, RETRY_DELAY]
TimeLimit = Annotated[float, TIME_LIMIT]


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


def output_lost(phase: str, task: int | None, times: int, reason: str) -> str:
    """The reason why a job fails that has lost the output of a task, or a gang, too often."""
    what, which = (
        (f"gang {phase}", "gang") if task is None else (f"{phase} task {task}", "task")
    )
    why = f": {reason}" if reason else ""
    return (
        f"the output of {what} was lost; this {which} has lost its slot or its output"
        f" {times} times{why}"
    )
