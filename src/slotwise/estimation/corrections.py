"""How wrong estimates of work and stated speeds were, from the tasks that have finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log

from slotwise.estimation.extrapolation import RUNNING_FLOOR, WORK_LEAST
from slotwise.model.decision import Launch
from slotwise.model.job import PhaseId
from slotwise.model.snapshot import PhaseView, Seen

TRUST = 1.0
"""A stated speed weighs as much as so many tasks that ran on the host."""

SWEEPS_MOST = 20
"""How often factors and speeds are set right in turn, at most."""

SETTLED = 1e-9
"""A change of all logarithms below this is none."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """Estimates as the finished tasks of this run have set them right.

    factors  by phase, how much more work a task was than expected; 1 for phases not named
    speeds   by host
    """

    factors: Mapping[PhaseId, float]
    speeds: Mapping[str, float]

    def work(self, phase: PhaseView, task: int) -> float:
        """The work of a task, seconds at speed 1, above 0."""
        return max(phase.expected(task) * self.factors.get(phase.id, 1.0), WORK_LEAST)

    def seconds_left(
        self, phase: PhaseView, launch: Launch, started: float, now: float
    ) -> float:
        """How long a running attempt will still need; one that has outlived its estimate is
        taken to need a part of it still."""
        seconds = self.work(phase, launch.task) / self.speeds[launch.host]
        left = started + seconds - now
        return left if left > 0 else RUNNING_FLOOR * seconds


def corrected(
    seen: Mapping[PhaseId, Mapping[str, Seen]], stated: Mapping[str, float]
) -> Corrected:
    """What finished tasks tell of phases and of hosts, which were said to have these speeds.

    A task is taken to need its expected work x factor of its phase / speed of its host. In
    logarithms that is a sum, which means in turn take apart, each phase and host weighed by the
    tasks that ran: the factor of a phase is free, while a speed is held by what was stated as
    if `TRUST` tasks had shown it. So the first task of a phase sets its estimate right, however
    wrong that was, and a host must be slow with several phases, or slower than others with one,
    to count as slow. O(phases x hosts) a sweep.
    """
    costs = [
        (phase, host, log(one.seconds * stated[host] / one.expected), one.tasks)
        for phase, hosts in seen.items()
        for host, one in hosts.items()
        if one.seconds > 0 and one.expected > 0
    ]
    factors = dict.fromkeys((phase for phase, *_ in costs), 0.0)
    slowness = dict.fromkeys(stated, 0.0)
    for _ in range(SWEEPS_MOST):
        sums = {phase: [0.0, 0.0] for phase in factors}
        for phase, host, cost, tasks in costs:
            sums[phase][0] += tasks * (cost - slowness[host])
            sums[phase][1] += tasks
        factors = {phase: total / count for phase, (total, count) in sums.items()}
        held = {host: [0.0, TRUST] for host in stated}
        for phase, host, cost, tasks in costs:
            held[host][0] += tasks * (cost - factors[phase])
            held[host][1] += tasks
        before, slowness = slowness, {h: total / count for h, (total, count) in held.items()}
        if all(abs(slowness[host] - before[host]) < SETTLED for host in stated):
            break
    return Corrected(
        {phase: exp(factor) for phase, factor in factors.items()},
        {host: speed * exp(-slowness[host]) for host, speed in stated.items()},
    )
