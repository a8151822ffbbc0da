"""FlowFlex as an allocator: plans all flows again, applies the first allocation (5.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, NamedTuple

from slotwise.core.cluster import Cluster
from slotwise.core.costs import Ints
from slotwise.core.dependencies import in_order
from slotwise.core.errors import check_installed
from slotwise.core.estimation import DEFAULT_WORK
from slotwise.core.job import Job, Phase, PhaseId
from slotwise.core.objective import Objective
from slotwise.policy.allocator import Claims, Waiting
from slotwise.policy.claims import size_on, with_measuring
from slotwise.policy.flowflex.flows import FlowNode, FlowProblem
from slotwise.policy.flowflex.solve import Method, solve
from slotwise.policy.grant import grant
from slotwise.policy.resource_shares import occupied_by_slot
from slotwise.policy.search.budget import Budget

STEP_SECONDS = 3e-6
"""The approximate time of a list schedule per phase. It converts a budget in seconds into one
in steps, so that the same run is decided in the same way on every machine."""

BUDGET_SECONDS = 0.005
"""For search at each decision: a hundredth of the usual epoch."""


@dataclass(frozen=True, slots=True)
class FlowFlex:
    """Plans whole jobs, including phases that are not ready yet, and grants slots by the plan.

    The plan is the best list schedule of the flows. Ready phases get slots in its order, within
    the min and max shares of phases and pools. MissingExtraError at construction if the
    minimum cost flow is needed and OR-Tools (extra `flow`) is missing.

    method          "fast": without the minimum cost flow; "paper": without our search
    budget_seconds  for the search; converted into steps by `STEP_SECONDS`
    """

    objective: Objective = field(default_factory=Objective)
    method: Method = "best"
    budget_seconds: float | None = None

    reads_work: ClassVar[bool] = True
    phase_seconds: ClassVar[float] = 3e-4
    keeps_min_shares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.method != "fast" and self.objective.aggregate == "sum":
            check_installed("ortools", "flowflex for a sum (unlike flowflex-fast)", "flow")

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim if no phase is ready on other kinds of slots."""
        (_, phase), *_ = claims.owner
        kind = claims.cluster.slot_kind(phase.kind)
        return self.share_all({kind: claims})[kind]

    def share_all(self, claims: Mapping[str, Claims]) -> dict[str, list[float]]:
        """Slots for each claim on each kind of slot."""
        claims = {kind: with_measuring(of_kind) for kind, of_kind in claims.items()}
        if not any(_compete(of_kind) for of_kind in claims.values()):
            # The result does not depend on the plan.
            return {
                kind: grant(of_kind, range(len(of_kind))) for kind, of_kind in claims.items()
            }
        left = flows_left(claims, self.objective)
        seconds = BUDGET_SECONDS if self.budget_seconds is None else self.budget_seconds
        budget = Budget(seconds / (STEP_SECONDS * len(left.flows.work)))
        solution = solve(left.flows, budget, self.method, listed=True)
        order = _order(left, solution.ranking, claims)
        return {kind: grant(of_kind, order[kind]) for kind, of_kind in claims.items()}


def _compete(claims: Claims) -> bool:
    """Whether the slots of a claim can depend on the order in which slots are granted."""
    is_limited = any(group.slots_max < inf for group in claims.groups)
    return len(claims) > 1 and (is_limited or sum(claims.max_share) > claims.capacity)


def _order(
    left: FlowsLeft, ranking: Ints, claims: Mapping[str, Claims]
) -> dict[str, list[int]]:
    """The claims on each kind of slot in order of the ranking."""
    order: dict[str, list[int]] = {kind: [] for kind in claims}
    for phase in ranking.tolist():
        for place in left.places[phase]:
            order[place.kind].append(place.number)
    return order


# Jobs as flows: their remaining phases, as the numeric problem that FlowFlex solves.


class Place(NamedTuple):
    """A claim: the kind of slot, and its index among the claims on this kind."""

    kind: str
    number: int


@dataclass(frozen=True, slots=True)
class FlowsLeft:
    """The remaining phases of jobs, and the claims of those that are ready.

    places  for each phase of `flows`, the claims that it stands for, in the order of their job;
            empty for a phase that is not ready yet
    """

    flows: FlowProblem
    places: Sequence[tuple[Place, ...]]


def whole_flows(
    jobs: Sequence[Job], cluster: Cluster, objective: Objective
) -> tuple[FlowProblem, list[PhaseId]]:
    """The flows of unstarted jobs of known work, and the names of phases. O(phases + arcs).

    Each job comes after those of them that it waits for.
    """
    ids = [PhaseId(job.id, phase.name) for job in jobs for phase in job.topological]
    flows = [_whole(job, cluster, lambda phase: phase.work_total() or 0.0) for job in jobs]
    costs = []
    alone: dict[str, float] = {}
    for job in jobs:
        size = size_on(job, cluster)
        before = [alone[name] for name in job.predecessors & alone.keys()]
        alone[job.id] = size.alone + max(before, default=0.0)
        costs.append(objective.cost(job, size._replace(alone=alone[job.id])))
    capacity = list(cluster.capacity.values())
    preceding = _preceding(jobs)
    return FlowProblem.of(capacity, flows, costs, objective.aggregate, preceding), ids


def _preceding(jobs: Sequence[Job]) -> list[list[int]]:
    """For each job, the places of those of them that it waits for, which come before it."""
    places = {job.id: number for number, job in enumerate(jobs)}
    return [[places[name] for name in sorted(job.predecessors & places.keys())] for job in jobs]


def _whole(job: Job, cluster: Cluster, work_of: Callable[[Phase], float]) -> list[FlowNode]:
    """The phases of an unstarted job as nodes."""
    kinds = {kind: number for number, kind in enumerate(cluster.capacity)}
    index = {phase.name: number for number, phase in enumerate(job.topological)}
    return [
        FlowNode(
            work_of(phase),
            phase.slots_most,
            tuple(index[name] for name in sorted(phase.waits_for)),
            kinds[cluster.slot_kind(phase.kind)],
        )
        for phase in job.topological
    ]


def flows_left(claims: Mapping[str, Claims], objective: Objective) -> FlowsLeft:
    """The remaining phases of the jobs with claims on slots of these kinds, from now on.

    Ready phases have their remaining work and wait for nothing. Their successors are still to
    come, and all other phases are done. If two phases of a job are ready at the same time on
    one kind of slot although one waits for the other, they become one phase with their total
    work and the larger max share: they are the same tasks at different times (FlowFlex 5.2).
    The jobs that wait for these jobs follow, whole. O(phases + arcs).
    """
    ready: dict[str, dict[str, Place]] = {}
    jobs: dict[str, Job] = {}
    for kind, of_kind in claims.items():
        for number, (job, phase) in enumerate(of_kind.owner):
            jobs[job.id] = job
            ready.setdefault(job.id, {})[phase.name] = Place(kind, number)
    some = next(iter(claims.values()))
    kinds = {kind: number for number, kind in enumerate(some.cluster.capacity)}
    flows, places, costs = [], [], []
    for name, job in jobs.items():
        nodes, stands_for = _left(job, ready[name], claims, kinds, some.cluster)
        flows.append(nodes)
        places += stands_for
        costs.append(objective.cost(job, size_on(job, some.cluster)).since(some.now))
    for job in in_order(_following(jobs, some.waiting)):
        jobs[job.id] = job
        flows.append(_whole(job, some.cluster, _work_of))
        places += [()] * len(job.phases)
        costs.append(objective.cost(job, size_on(job, some.cluster)).since(some.now))
    preceding = _preceding(list(jobs.values())) if some.waiting else ()
    capacity = [
        # If all hosts of a kind are unresponsive, phases wait for them; use the full capacity,
        # or one slot if there are no such hosts.
        some.present.get(kind) or slots or 1
        for kind, slots in some.cluster.capacity.items()
    ]
    problem = FlowProblem.of(capacity, flows, costs, objective.aggregate, preceding)
    return FlowsLeft(problem, places)


def _following(jobs: Mapping[str, Job], waiting: Mapping[str, Waiting]) -> list[Job]:
    """The jobs that wait only for these jobs and for each other."""
    found = dict(waiting)
    while others := [
        name for name, one in found.items() if not one.jobs <= jobs.keys() | found.keys()
    ]:
        for name in others:  # It waits for a job that has not arrived or was not admitted.
            del found[name]
    return [one.job for one in found.values()]


def _left(
    job: Job,
    ready: Mapping[str, Place],
    claims: Mapping[str, Claims],
    kinds: Mapping[str, int],
    cluster: Cluster,
) -> tuple[list[FlowNode], list[tuple[Place, ...]]]:
    """The unfinished phases of a job as nodes, and the claims of each node."""
    works = claims[next(iter(ready.values())).kind].left.get(job.id, ())
    left = dict(zip([phase.name for phase in job.phases], works, strict=False))
    nodes: list[FlowNode] = []
    places: list[tuple[Place, ...]] = []
    index: dict[str, int] = {}
    for phase in job.topological:
        before = {index[name] for name in phase.waits_for if name in index}
        place = ready.get(phase.name)
        if place is None:
            if not before:
                continue  # It is done: it is not ready, and nothing that it waits for is left.
            kind = kinds[cluster.slot_kind(phase.kind)]
            worth = occupied_by_slot(phase, cluster)
            work = left.get(phase.name) or _work_of(phase) * worth
            nodes.append(FlowNode(work, phase.slots_most * worth, tuple(before), kind))
            places.append(())
        else:
            of_kind = claims[place.kind]
            work, max_share = of_kind.work[place.number], float(of_kind.max_share[place.number])
            earlier = _ready_before(before, places, place.kind)
            if earlier is not None:
                node = nodes[earlier]
                nodes[earlier] = FlowNode(
                    node.work + work, max(node.max_share, max_share), (), node.kind
                )
                places[earlier] = (*places[earlier], place)
                index[phase.name] = earlier
                continue
            nodes.append(FlowNode(work, max_share, (), kinds[place.kind]))
            places.append((place,))
        index[phase.name] = len(nodes) - 1
    return nodes, places


def _ready_before(
    before: Iterable[int], places: Sequence[tuple[Place, ...]], kind: str
) -> int | None:
    """A ready node of the same kind among the predecessors of a ready phase, or None."""
    return next((n for n in sorted(before) if places[n] and places[n][0].kind == kind), None)


def _work_of(phase: Phase) -> float:
    work = phase.work_total()
    return (
        DEFAULT_WORK * phase.tasks.count * phase.slots if work is None else max(work, MIN_WORK)
    )


MIN_WORK = 1e-9
"""Seconds; the minimum work of a phase."""
