"""The analysis of delay scheduling: what waiting for a local slot promises, and when it pays.

The cluster it speaks of has `nodes` nodes, each with the same number of slots, all busy. Slots
come free one at a time, each as likely as the next, and every one is offered to the job at the
head of the queue, which lets it pass (skips it) if no data of its tasks lie there. Blocks have
`replicas` copies on nodes drawn at random. The count of skips begins anew at each launch.

Sources: Zaharia and others, "Job Scheduling for MapReduce" (slides, "Further Analysis"), and
their analysis of delay scheduling (EuroSys 2010, section 4).
"""

from __future__ import annotations

from math import ceil, exp, expm1, inf, isfinite, log

from slotwise.model.errors import InputError


def part_with_data(tasks_left: int, nodes: int, replicas: int = 3) -> float:
    """The part of the nodes that holds data for one of the tasks left: 1 - (1 - K/M)^R.

    For many nodes: blocks are taken to lie apart from each other, copies independently.
    """
    _check(tasks_left=tasks_left, nodes=nodes, replicas=replicas)
    return 1.0 - max(0.0, 1.0 - tasks_left / nodes) ** replicas


def locality_of_launch(part: float, skips: float) -> float:
    """The chance that a launch is node-local: 1 - (1 - p)^n.

    `part` of the nodes holds data, and the job looks at `skips` offers before it takes any.
    """
    if not (0 <= part <= 1 and skips >= 0):
        raise InputError(f"part is {part} and skips {skips}; give 0 to 1, and a number >= 0")
    missed: float = (1.0 - part) ** skips
    return 1.0 - missed


def locality_of_job(tasks: int, skips: float, nodes: int, replicas: int = 3) -> float:
    """The part of a job's tasks that is node-local: the mean over 1 to `tasks` tasks left.

    O(tasks). Each launch leaves one task fewer, and nodes with data become rarer.
    """
    _check(tasks=tasks, nodes=nodes, replicas=replicas)
    launches = (part_with_data(left, nodes, replicas) for left in range(1, tasks + 1))
    return sum(locality_of_launch(part, skips) for part in launches) / tasks


def locality_of_job_least(tasks: int, skips: float, nodes: int, replicas: int = 3) -> float:
    """A lower bound of `locality_of_job` in closed form: 1 - q / (N (1 - q)), q = e^(-R D / M).

    (1 - K/M)^(R D) is at most q^K, and the q^K are summed without end. Below 0 it says nothing.
    """
    _check(tasks=tasks, nodes=nodes, replicas=replicas)
    if skips == 0:
        return -inf
    exponent = replicas * skips / nodes
    return 1.0 - exp(-exponent) / (tasks * -expm1(-exponent))


def skips_for(locality: float, tasks: int, nodes: int, replicas: int = 3) -> int:
    """The fewest skips for which the bound promises a job of so many tasks this locality.

    D >= -(M/R) ln((1 - l) N / (1 + (1 - l) N)). No number of skips promises a locality of 1.
    """
    _check(tasks=tasks, nodes=nodes, replicas=replicas)
    if not 0 <= locality < 1:
        raise InputError(f"locality is {locality}; wish for 0 or more, but less than 1")
    remote = (1.0 - locality) * tasks
    return ceil(-nodes / replicas * log(remote / (1.0 + remote)))


def wait_for_skips(skips: float, nodes: int, slots_per_node: int, task_seconds: float) -> float:
    """The seconds that so many skips take on average: (D/M) (T/L).

    `task_seconds` is the mean length of all tasks on the cluster: with all slots busy, one of
    them comes free every task_seconds / (nodes * slots_per_node) seconds.
    """
    _check(nodes=nodes, slots_per_node=slots_per_node)
    return skips / nodes * task_seconds / slots_per_node


def expected_gain(wait: float, local_after: float, delay: float) -> float:
    """Seconds that a task gains on average by waiting up to `wait`: (1 - e^(-w/t)) (D - t).

    Local slots come as a Poisson process, every `local_after` seconds on average (t); a task
    that runs away from its input takes `delay` seconds longer (D). Below 0 waiting loses.
    """
    return _chance(wait, local_after) * (delay - local_after)


def expected_wait(wait: float, local_after: float) -> float:
    """Seconds that a task waits on average if it waits up to `wait`: t (1 - e^(-w/t))."""
    return _chance(wait, local_after) * local_after


def pays_to_wait(local_after: float, delay: float) -> bool:
    """Whether waiting gains anything: D > t. If it does, the longest wait gains the most."""
    return delay > local_after


def _chance(wait: float, local_after: float) -> float:
    """The chance that a local slot comes within the wait."""
    if not (wait >= 0 and local_after > 0 and isfinite(local_after)):
        raise InputError(
            f"wait is {wait} and local_after {local_after}; give seconds >= 0 and > 0"
        )
    return -expm1(-wait / local_after)


def _check(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise InputError(f"{name} is {count}; give at least 1")
