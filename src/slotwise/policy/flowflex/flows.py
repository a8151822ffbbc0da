"""The numeric problem that FlowFlex solves: flows, which are DAGs of phases, that share slots.

The paper's "flow" is a job in this package, and its "job" is a phase. The numeric problem uses
"flow", since it may be the remaining part of a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise

import numpy as np

from slotwise.core.costs import Costs, Floats, Ints
from slotwise.core.objective import Aggregate, Cost
from slotwise.core.tolerances import ROUNDING


@dataclass(frozen=True)
class FlowProblem:
    """J flows of N phases in all, present from time 0 on; created by `FlowProblem.of`.

    A phase does its work at the rate of its slots, at most `max_share` slots of its kind, after
    all phases before it are done. A flow is complete when all of its phases are (FlowFlex 3).
    A flow may also come after others, unlike in the paper: none of its phases begins before
    these are complete. The guarantees of the paper do not cover such flows.

    capacity   slots of each kind, K whole numbers > 0
    kind       the kind of slot of each phase: an index into `capacity`
    work       of each phase, seconds, > 0
    max_share  slots of each phase, whole, from 1 to the capacity of its kind
    flow       of each phase, 0 to J - 1; the phases of a flow are adjacent
    before     for each phase, its predecessors, all with lower indices: those in its flow, and
               for its first phases the last ones of the flows before it
    costs      of each flow, by its completion
    aggregate  of the costs: "sum" or "max"
    preceding  for each flow, the flows before it, all with lower indices; empty if no flow has
               such flows
    """

    capacity: Ints
    kind: Ints
    work: Floats
    max_share: Floats
    flow: Ints
    before: Sequence[Sequence[int]]
    costs: Costs
    aggregate: Aggregate
    preceding: Sequence[Sequence[int]] = ()

    @classmethod
    def of(
        cls,
        capacity: Sequence[int],
        flows: Sequence[Sequence[FlowNode]],
        costs: Sequence[Cost],
        aggregate: Aggregate = "sum",
        preceding: Sequence[Sequence[int]] = (),
    ) -> FlowProblem:
        """The problem of these flows; max shares are cut to the capacity. O(N + arcs)."""
        assert len(flows) == len(costs), "one cost for each flow"
        assert all(flows), "every flow has a phase"
        slots = np.array(capacity, dtype=np.int64)
        nodes = [node for flow in flows for node in flow]
        kind = np.array([node.kind for node in nodes], dtype=np.int64)
        max_share = np.array([node.max_share for node in nodes], dtype=float)
        first = np.cumsum([0, *map(len, flows)])
        before = [
            tuple(begin + other for other in node.before)
            for begin, flow in zip(first.tolist(), flows, strict=False)
            for node in flow
        ]
        if any(preceding):
            _join(before, first.tolist(), preceding)
        assert all(other < n for n, others in enumerate(before) for other in others)
        return cls(
            capacity=slots,
            kind=kind,
            work=np.array([node.work for node in nodes], dtype=float),
            max_share=np.minimum(max_share, slots[kind]),
            flow=np.repeat(np.arange(len(flows)), np.diff(first)),
            before=before,
            costs=Costs(costs),
            aggregate=aggregate,
            preceding=preceding if any(preceding) else (),
        )

    def __len__(self) -> int:
        return len(self.costs)

    @cached_property
    def first(self) -> Ints:
        """The first phase of each flow, followed by N."""
        return np.searchsorted(self.flow, np.arange(len(self) + 1))

    @cached_property
    def after(self) -> tuple[Ints, Ints, Ints]:
        """The first follower of each phase, all followers, and the number it waits for."""
        count = len(self.before)
        waits = np.fromiter(map(len, self.before), np.int64, count)
        before = np.fromiter(chain.from_iterable(self.before), np.int64, int(waits.sum()))
        followers = np.repeat(np.arange(count), waits)[np.argsort(before, kind="stable")]
        first = np.concatenate([[0], np.cumsum(np.bincount(before, minlength=count))])
        return first, followers, waits

    @cached_property
    def length(self) -> Floats:
        """The minimum time of each phase, with its max share, seconds."""
        return self.work / self.max_share

    @cached_property
    def head(self) -> Floats:
        """The earliest start of each phase, with unlimited slots, seconds: b_i."""
        length, head = self.length.tolist(), [0.0] * len(self.work)
        for phase, others in enumerate(self.before):
            head[phase] = max([head[other] + length[other] for other in others], default=0.0)
        return np.array(head)

    @cached_property
    def tail(self) -> Floats:
        """The minimum time from the end of each phase to that of its flow, seconds."""
        length, tail = self.length.tolist(), [0.0] * len(self.work)
        for phase in reversed(range(len(tail))):
            through = tail[phase] + length[phase]
            for other in self.inner[phase]:
                tail[other] = max(tail[other], through)
        return np.array(tail)

    @cached_property
    def inner(self) -> Sequence[Sequence[int]]:
        """For each phase, its predecessors in its flow."""
        if not self.preceding:
            return self.before
        flow, first = self.flow.tolist(), self.first.tolist()
        return [
            [other for other in others if other >= first[flow[phase]]]
            for phase, others in enumerate(self.before)
        ]

    def inherited(self, deadline: Floats) -> Floats:
        """The deadlines, but early enough for the flows that come after. O(flows + arcs)."""
        if not self.preceding:
            return deadline
        due = deadline.copy()
        span = np.maximum.reduceat(self.tail + self.length, self.first[:-1])
        for flow in reversed(range(len(due))):
            for other in self.preceding[flow]:
                due[other] = min(due[other], due[flow] - span[flow])
        return due

    @cached_property
    def critical_path(self) -> Floats:
        """The minimum time of each flow with unlimited slots, seconds."""
        return np.maximum.reduceat(self.head + self.length, self.first[:-1])

    @cached_property
    def volume(self) -> Floats:
        """The work of each flow: V_j, seconds."""
        return np.add.reduceat(self.work, self.first[:-1])

    @cached_property
    def squashed_area(self) -> Floats:
        """The minimum time of each flow's work on all slots of the kinds it needs, seconds."""
        spans = np.zeros(len(self))
        for kind, slots in enumerate(self.capacity.tolist()):
            mine = np.where(self.kind == kind, self.work, 0.0)
            spans = np.maximum(spans, np.add.reduceat(mine, self.first[:-1]) / slots)
        return spans

    @cached_property
    def alone(self) -> Floats:
        """The maximum of critical path and squashed area, a lower bound for each flow, (2)."""
        return np.maximum(self.critical_path, self.squashed_area)

    def completion(self, ends: Floats) -> Floats:
        """When each flow is done, by the ends of its phases, seconds."""
        return np.maximum.reduceat(ends, self.first[:-1])

    def value(self, completion: Floats) -> float:
        """The sum or the maximum of the costs of these completions of flows; 0 without any."""
        if not len(self):
            return 0.0
        costs = self.costs.at(completion)
        return float(costs.max() if self.aggregate == "max" else costs.sum())


def _join(
    before: list[tuple[int, ...]], first: Sequence[int], preceding: Sequence[Sequence[int]]
) -> None:
    """Let the first phases of each flow wait for the last ones of the flows before it."""
    has_later = {other for others in before for other in others}
    last = [
        tuple(phase for phase in range(begin, end) if phase not in has_later)
        for begin, end in pairwise(first)
    ]
    for flow, others in enumerate(preceding):
        ends = tuple(phase for other in others for phase in last[other])
        for phase in range(first[flow], first[flow + 1]):
            if not before[phase]:
                before[phase] = ends


@dataclass(frozen=True, slots=True)
class FlowNode:
    """A phase of a flow: its work, max share, predecessors by index in the flow, and kind."""

    work: float
    max_share: float
    before: tuple[int, ...] = ()
    kind: int = 0


# Stage 1: each flow becomes a chain of pseudo-jobs (FlowFlex 4.1, Fig. 4).


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
        for lasts, running in _pseudo_schedule(phases, flows.inner, length):
            members.append(running)
            starts.append(now)
            lengths.append(lasts)
            flow.append(number)
            now += lasts
    height = np.array([sum([max_share[phase] for phase in running]) for running in members])
    before: list[tuple[int, ...]] = [
        (k - 1,) if k and flow[k] == flow[k - 1] else () for k in range(len(flow))
    ]
    if flows.preceding:
        begins = np.searchsorted(flow, np.arange(len(flows) + 1)).tolist()
        _join(before, begins, flows.preceding)
    problem = replace(
        flows,
        kind=np.zeros(len(height), dtype=np.int64),
        work=height * np.array(lengths),
        max_share=height,
        flow=np.array(flow, dtype=np.int64),
        before=before,
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
