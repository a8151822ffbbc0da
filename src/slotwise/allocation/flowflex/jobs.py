"""Jobs as flows: their remaining phases, as the numeric problem that FlowFlex solves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slotwise.allocation.flowflex.flows import FlowNode, FlowProblem
from slotwise.allocation.paths import size_on
from slotwise.allocation.problem import Claims
from slotwise.estimation.extrapolation import DEFAULT_WORK
from slotwise.model.cluster import Cluster
from slotwise.model.job import Job, Phase, PhaseId
from slotwise.objective.objective import Objective


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
    """The flows of unstarted jobs of known work, and the names of phases. O(phases + arcs)."""
    ids, flows = [], []
    kinds = {kind: number for number, kind in enumerate(cluster.capacity)}
    for job in jobs:
        phases = list(job.topological)
        ids += [PhaseId(job.id, phase.name) for phase in phases]
        index = {phase.name: number for number, phase in enumerate(phases)}
        flows.append([
            FlowNode(
                phase.work_total() or 0.0,
                phase.slots_most,
                tuple(index[name] for name in sorted(phase.waits_for)),
                kinds[cluster.slot_kind(phase.kind)],
            )
            for phase in phases
        ])  # fmt: skip
    costs = [objective.cost(job, size_on(job, cluster)) for job in jobs]
    capacity = list(cluster.capacity.values())
    return FlowProblem.of(capacity, flows, costs, objective.aggregate), ids


def flows_left(claims: Mapping[str, Claims], objective: Objective) -> FlowsLeft:
    """The remaining phases of the jobs with claims on slots of these kinds, from now on.

    Ready phases have their remaining work and wait for nothing. Their successors are still to
    come, and all other phases are done. If two phases of a job are ready at the same time on
    one kind of slot although one waits for the other, they become one phase with their total
    work and the larger max share: they are the same tasks at different times (FlowFlex 5.2).
    O(phases + arcs).
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
    capacity = [
        # If all hosts of a kind are unresponsive, phases wait for them; use the full capacity,
        # or one slot if there are no such hosts.
        some.present.get(kind) or slots or 1
        for kind, slots in some.cluster.capacity.items()
    ]
    return FlowsLeft(FlowProblem.of(capacity, flows, costs, objective.aggregate), places)


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
            work = left.get(phase.name) or _work_of(phase)
            nodes.append(FlowNode(work, phase.slots_most, tuple(before), kind))
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
