"""Stage 1: each flow becomes a chain of pseudo-jobs (FlowFlex 4.1, Fig. 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slotwise.allocation.flowflex.flows import FlowProblem
from slotwise.allocation.tolerances import ROUNDING
from slotwise.objective.costs import Floats


@dataclass(frozen=True, slots=True)
class Chains:
    """Flows as chains: pseudo-job k of a flow is the part of it that runs in interval k.

    problem  the same flows, with consecutive pseudo-jobs as phases; a pseudo-job may use more
             slots than the capacity
    members  for each pseudo-job, the phases of the flow that run in it, each on its max share
    start    of each pseudo-job in the pseudo-schedule of its flow, seconds
    """

    problem: FlowProblem
    members: Sequence[tuple[int, ...]]
    start: Floats


def chains_of(flows: FlowProblem) -> Chains:
    """The chains of flows whose phases all draw on one kind of slot.

    In the pseudo-schedule every phase of a flow starts as early as precedence allows and holds
    its max share, as if slots were unlimited. The schedule is cut wherever a phase ends; the
    intervals are the pseudo-jobs. Squashed area and critical path of each flow do not change.
    The phases in one pseudo-job do not wait for each other. O(n^2) for a flow of n phases, and
    at most n pseudo-jobs.
    """
    assert len(flows.capacity) == 1, "pseudo-jobs draw on one kind of slot"
    members: list[tuple[int, ...]] = []
    starts: list[float] = []
    lengths: list[float] = []
    flow: list[int] = []
    max_share, length = flows.max_share.tolist(), flows.length.tolist()
    first = flows.first.tolist()
    for number, phases in enumerate(map(range, first, first[1:])):
        now = 0.0
        for lasts, running in _pseudo_schedule(phases, flows.before, length):
            members.append(running)
            starts.append(now)
            lengths.append(lasts)
            flow.append(number)
            now += lasts
    height = np.array([sum([max_share[phase] for phase in running]) for running in members])
    problem = replace(
        flows,
        kind=np.zeros(len(height), dtype=np.int64),
        work=height * np.array(lengths),
        max_share=height,
        flow=np.array(flow, dtype=np.int64),
        before=[(k - 1,) if k and flow[k] == flow[k - 1] else () for k in range(len(flow))],
    )
    return Chains(problem, members, np.array(starts))


def _pseudo_schedule(
    phases: range, before: Sequence[Sequence[int]], length: Sequence[float]
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """The consecutive sets of phases of a flow that run together, each with its length.

    It tracks the remainder of each phase, not instants: the difference of two late instants
    would have few digits for a short phase.
    """
    left = {phase: length[phase] for phase in phases}
    waits = {phase: len(before[phase]) for phase in phases}
    after: dict[int, list[int]] = {phase: [] for phase in phases}
    for phase in phases:
        for other in before[phase]:
            after[other].append(phase)
    running = [phase for phase in phases if not waits[phase]]
    while running:
        step = min([left[phase] for phase in running])
        yield step, tuple(running)
        rest: list[int] = []
        ready: list[int] = []
        for phase in running:
            left[phase] -= step
            if left[phase] > ROUNDING * length[phase]:
                rest.append(phase)
                continue
            for follower in after[phase]:
                waits[follower] -= 1
                if not waits[follower]:
                    ready.append(follower)
        running = sorted(rest + ready)
