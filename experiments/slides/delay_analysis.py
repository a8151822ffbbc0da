"""The analysis of delay scheduling: the locality that waiting achieves, and when it pays off.

The model is a cluster of `nodes` nodes with equal numbers of slots, all busy. Slots become free
one at a time, with equal probability. Each is offered to the job at the head of the queue,
which skips it if the node has no input of its tasks. Blocks have `replicas` copies on random
nodes. The count of skips restarts at each launch.

Sources: Zaharia and others, "Job Scheduling for MapReduce" (slides, "Further Analysis"), and
their analysis of delay scheduling (EuroSys 2010, section 4).
"""

from __future__ import annotations

from math import ceil, exp, expm1, inf, isfinite, log

from slotwise.core.errors import InputError


def part_with_data(tasks_left: int, nodes: int, replicas: int = 3) -> float:
    """The part of the nodes that holds input of a remaining task: 1 - (1 - K/M)^R.

    An approximation for many nodes: blocks are on different nodes, and copies are independent.
    """
    _check(tasks_left=tasks_left, nodes=nodes, replicas=replicas)
    return 1.0 - max(0.0, 1.0 - tasks_left / nodes) ** replicas


def locality_of_launch(part: float, skips: float) -> float:
    """The probability that a launch is node-local: 1 - (1 - p)^n.

    `part` of the nodes holds input, and the job considers `skips` offers before it accepts any.
    InputError for a part outside 0 to 1 or negative skips.
    """
    if not (0 <= part <= 1 and skips >= 0):
        raise InputError(f"part is {part} and skips {skips}; give 0 to 1, and a number >= 0")
    missed: float = (1.0 - part) ** skips
    return 1.0 - missed


def locality_of_job(tasks: int, skips: float, nodes: int, replicas: int = 3) -> float:
    """The part of a job's tasks that is node-local: the mean over 1 to `tasks` remaining tasks.

    With each launch, fewer nodes hold input of a remaining task. O(tasks).
    """
    _check(tasks=tasks, nodes=nodes, replicas=replicas)
    launches = (part_with_data(left, nodes, replicas) for left in range(1, tasks + 1))
    return sum(locality_of_launch(part, skips) for part in launches) / tasks


def locality_of_job_least(tasks: int, skips: float, nodes: int, replicas: int = 3) -> float:
    """A lower bound of `locality_of_job` in closed form: 1 - q / (N (1 - q)), q = e^(-R D / M).

    (1 - K/M)^(R D) is at most q^K, and the infinite sum of q^K is used. It may be negative.
    """
    _check(tasks=tasks, nodes=nodes, replicas=replicas)
    if skips == 0:
        return -inf
    exponent = replicas * skips / nodes
    return 1.0 - exp(-exponent) / (tasks * -expm1(-exponent))


def skips_for(locality: float, tasks: int, nodes: int, replicas: int = 3) -> int:
    """The fewest skips for which the lower bound of a job of `tasks` tasks is this locality.

    D >= -(M/R) ln((1 - l) N / (1 + (1 - l) N)). No number of skips guarantees a locality of 1:
    InputError unless 0 <= locality < 1.
    """
    _check(tasks=tasks, nodes=nodes, replicas=replicas)
    if not 0 <= locality < 1:
        raise InputError(f"locality is {locality}; wish for 0 or more, but less than 1")
    remote = (1.0 - locality) * tasks
    return ceil(-nodes / replicas * log(remote / (1.0 + remote)))


def wait_for_skips(skips: float, nodes: int, slots_per_node: int, task_seconds: float) -> float:
    """The mean time of this number of skips, seconds: (D/M) (T/L).

    `task_seconds` is the mean duration of all tasks on the cluster. With all slots busy, a slot
    becomes free every task_seconds / (nodes * slots_per_node) seconds.
    """
    _check(nodes=nodes, slots_per_node=slots_per_node)
    return skips / nodes * task_seconds / slots_per_node


def expected_gain(wait: float, local_after: float, delay: float) -> float:
    """The mean gain of a task that waits up to `wait`, seconds: (1 - e^(-w/t)) (D - t).

    Local slots become free as a Poisson process, every `local_after` seconds on average (t). A
    task that runs away from its input takes `delay` seconds longer (D). Negative if waiting
    does not pay off.
    """
    return _chance(wait, local_after) * (delay - local_after)


def expected_wait(wait: float, local_after: float) -> float:
    """The mean wait of a task that waits up to `wait`, seconds: t (1 - e^(-w/t))."""
    return _chance(wait, local_after) * local_after


def pays_to_wait(local_after: float, delay: float) -> bool:
    """Whether waiting gains anything: D > t. If so, longer waits gain more."""
    return delay > local_after


def _chance(wait: float, local_after: float) -> float:
    """The probability that a local slot becomes free within the wait."""
    if not (wait >= 0 and local_after > 0 and isfinite(local_after)):
        raise InputError(
            f"wait is {wait} and local_after {local_after}; give seconds >= 0 and > 0"
        )
    return -expm1(-wait / local_after)


def _check(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise InputError(f"{name} is {count}; give at least 1")
