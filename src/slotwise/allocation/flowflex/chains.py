"""Stage 1: each flow becomes a chain of pseudo-jobs (FlowFlex 4.1, Fig. 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slotwise.allocation.flowflex.flows import Flows
from slotwise.objective.costs import Floats


@dataclass(frozen=True, slots=True)
class Chains:
    """Flows as chains: pseudo-job k of a flow is what runs of it in interval k.

    problem  the same flows, their phases being pseudo-jobs one after the other; a pseudo-job
             may use more slots than there are
    members  of each pseudo-job, the phases of the flow that run in it, each on its most slots
    start    of each pseudo-job, in the pseudo-schedule of its flow, seconds
    """

    problem: Flows
    members: Sequence[tuple[int, ...]]
    start: Floats


def chains_of(flows: Flows) -> Chains:
    """The chains of flows whose phases all draw on one kind of slot.

    In the pseudo-schedule every phase of a flow starts as early as precedence allows and holds
    its most share, as if there were slots without end. It is cut wherever a phase starts or
    ends; the pieces are the pseudo-jobs. Squashed area and critical path of each flow stay
    what they were, and pieces of different phases in one pseudo-job wait for nothing of each
    other. O(n^2) for a flow of n phases, and at most 2 n - 1 pseudo-jobs.
    """
    assert len(flows.capacity) == 1, "pseudo-jobs draw on one kind of slot"
    members: list[tuple[int, ...]] = []
    starts, lengths, counts = [], [], []
    head, end = flows.head, flows.head + flows.length
    for first, last in zip(flows.first[:-1].tolist(), flows.first[1:].tolist(), strict=True):
        begins, ends = head[first:last], end[first:last]
        cuts = np.unique(np.concatenate([begins, ends]))
        runs = (begins <= cuts[:-1, None]) & (ends > cuts[:-1, None])
        members += [tuple((first + np.flatnonzero(row)).tolist()) for row in runs]
        starts.append(cuts[:-1])
        lengths.append(np.diff(cuts))
        counts.append(len(cuts) - 1)
    height = np.array([flows.most[list(phases)].sum() for phases in members])
    flow = np.repeat(np.arange(len(flows)), counts)
    problem = replace(
        flows,
        kind=np.zeros(len(height), dtype=np.int64),
        work=height * np.concatenate(lengths),
        most=height,
        flow=flow,
        before=[
            (k - 1,) if k > 0 and flow[k] == flow[k - 1] else () for k in range(len(height))
        ],
    )
    return Chains(problem, members, np.concatenate(starts))
