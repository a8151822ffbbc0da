"""The time of FlowFlex plans for flows of 20 phases each, and their distance from the bound.

The flows are those of FlowFlex 5.1 on 25 slots. Four tables:

- whole plans with their bounds, for sums and maxima, and where the time goes;
- the minimum cost flow with intervals of time, and with one node per unit of time, as the paper
  writes it: seconds and bounds of both, by the same solver (ortools);
- one list schedule, in Python and as machine code (numba);
- one decision of a running scheduler, with all flows present.

Quote the ratios of one run; seconds depend on the machine and its load.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from experiments.flowflex.generator import FlowGenerator
from slotwise.core.cluster import Cluster
from slotwise.core.job import Job
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool, PoolTree
from slotwise.plans import plan
from slotwise.policy.allocator import Claims
from slotwise.policy.compiled import compiled, has_numba
from slotwise.policy.flowflex.allocator import FlowFlex, whole_flows
from slotwise.policy.flowflex.flows import FlowProblem
from slotwise.policy.flowflex.list_schedule import RUN_LIST, PhaseLister, run_list
from slotwise.policy.flowflex.paper import by_deadline, least_cost
from slotwise.policy.fluid import claims_of_progress, progress_of

PHASES, SLOTS = 20, 25
GOALS = {20: 0.5, 200: 1.0, 2_000: 15.0}
"""Seconds for a whole plan with its bound, by flows."""

OBJECTIVES = {
    "sum of response": Objective("response"),
    "sum of sla": Objective("sla"),
    "max of stretch": Objective("stretch", "max"),
}
UNITS = ((20, 500), (20, 4_000), (200, 2_000))
"""Flows, and units of time in which all work is done: the dimensions of the paper's network."""


def main() -> None:
    drawn = {count: draw(count) for count in GOALS}
    print_plans(drawn)
    print_networks(drawn)
    print_schedules(drawn)
    print_decisions(drawn)


def draw(count: int) -> tuple[Job, ...]:
    """This number of flows of FlowFlex 5.1, each with the same number of phases."""
    sizes = {"flows_least": count, "flows_most": count}
    phases = {"phases_least": PHASES, "phases_most": PHASES}
    return FlowGenerator(**sizes, **phases, slots=SLOTS).draw(np.random.default_rng(count))


def print_plans(drawn: dict[int, tuple[Job, ...]]) -> None:
    plan(drawn[20], "flowflex", slots=SLOTS)  # Triggers the lazy imports.
    print(f"Whole plans of flows of {PHASES} phases on {SLOTS} slots, in seconds")
    print(
        f"{'flows':>6} {'goal':>5}  {'objective':16} {'plan':>7} {'solve':>7} {'bound':>7}",
        end="",
    )
    print(f" {'value/bound':>12} {'without search':>15}")
    for count, jobs in drawn.items():
        for name, objective in OBJECTIVES.items():
            begun = time.perf_counter()
            made = plan(jobs, "flowflex", objective=objective, slots=SLOTS)
            whole = time.perf_counter() - begun
            begun = time.perf_counter()
            plan(jobs, "flowflex", objective=objective, slots=SLOTS, budget_steps=0)
            unsearched = time.perf_counter() - begun
            print(f"{count:6} {GOALS[count]:5.1f}  {name:16} {whole:7.2f}", end="")
            print(f" {made.seconds:7.2f} {whole - made.seconds:7.2f}", end="")
            print(f" {made.value / made.bound:12.4f} {unsearched:13.2f} s", flush=True)


def print_networks(drawn: dict[int, tuple[Job, ...]]) -> None:
    print("\nMinimum cost flow for the sum of response: intervals of time, and units of time")
    print(f"{'flows':>6} {'units':>6} {'intervals, ms':>14} {'units, ms':>10} {'x':>6}", end="")
    print("   bound by intervals / by units")
    for count, units in UNITS:
        flows = numbers(drawn[count], "sum of response")
        network, taken = timed(partial(least_cost, flows))
        bound, literal = timed(partial(unit_bound, flows, units), 1)
        print(f"{count:6} {units:6} {taken * 1e3:14.1f} {literal * 1e3:10.0f}", end="")
        print(f" {literal / taken:6.0f}   {network.bound / bound:.4f}", flush=True)


def print_schedules(drawn: dict[int, tuple[Job, ...]]) -> None:
    print("\nOne list schedule, in ms")
    print(f"{'flows':>6} {'phases':>7} {'Python':>9} {'compiled':>9} {'x':>5}")
    for count, jobs in drawn.items():
        flows = numbers(jobs, "sum of response")
        ranking = by_deadline(flows, flows.alone)
        _, slow = timed(partial(PhaseLister(flows, is_fast=False).ends, ranking))
        line = f"{count:6} {len(flows.work):7} {slow * 1e3:9.2f}"
        if has_numba():
            compiled(run_list, RUN_LIST)
            lister = PhaseLister(flows, is_fast=True)
            _, fast = timed(partial(lister.ends, ranking), 20)
            line += f" {fast * 1e3:9.3f} {slow / fast:5.0f}"
        print(line, flush=True)


def print_decisions(drawn: dict[int, tuple[Job, ...]]) -> None:
    print("\nOne decision of a running scheduler, all flows there, in ms")
    print(f"{'flows':>6} {'ready':>6}  {'objective':16} {'flowflex':>9} {'without search':>15}")
    for count, jobs in drawn.items():
        claims = claimed(jobs)
        for name, objective in OBJECTIVES.items():
            takes = [
                timed(partial(FlowFlex(objective, budget_seconds=budget).share_all, claims))[1]
                for budget in (None, 0.0)
            ]
            print(f"{count:6} {len(claims['task']):6}  {name:16}", end="")
            print(f" {takes[0] * 1e3:9.1f} {takes[1] * 1e3:15.1f}", flush=True)


def numbers(jobs: Sequence[Job], objective: str) -> FlowProblem:
    return whole_flows(jobs, Cluster.of_slots(SLOTS), OBJECTIVES[objective])[0]


def claimed(jobs: Sequence[Job]) -> dict[str, Claims]:
    """The claims of the first phases of all jobs."""
    ready = [
        progress_of(job, phase)
        for job in jobs
        for phase in job.topological
        if not phase.waits_for
    ]
    cluster = Cluster.of_slots(SLOTS)
    (kind,) = cluster.capacity
    pools = PoolTree([Pool(job.pool) for job in jobs[:1]])
    return {kind: claims_of_progress(ready, SLOTS, cluster, pools)}


def unit_bound(flows: FlowProblem, units: int) -> float:
    """The value of the network of Fig. 6 line by line, with this number of units of time."""
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

    count, capacity = len(flows), float(flows.capacity.sum())
    unit = float(flows.volume.sum()) / capacity / units
    last = np.arange(1, units + 1) * unit
    cost = np.array([flows.costs.at(np.maximum(at - unit, flows.alone)) for at in last]).T
    grain = flows.volume.sum() / 2**30
    supply = np.floor(flows.volume / grain).astype(np.int64)
    flow, at = np.nonzero(last >= np.minimum(flows.alone, last[-1])[:, None])
    price = cost[flow, at] / flows.volume[flow]
    scale = 2**28 / float(price.max())
    network = SimpleMinCostFlow()
    node, sink = count + np.arange(units), count + units
    room = np.full(units, np.ceil(unit * capacity / grain), dtype=np.int64)
    none, all_work = np.zeros(units, np.int64), int(supply.sum())
    network.add_arcs_with_capacity_and_unit_cost(
        flow, node[at], supply[flow], np.floor(price * scale).astype(np.int64)
    )
    network.add_arcs_with_capacity_and_unit_cost(node, np.full(units, sink), room, none)
    network.add_arcs_with_capacity_and_unit_cost(
        node[1:], node[:-1], np.full(units - 1, all_work), none[1:]
    )
    network.set_nodes_supplies(np.arange(count), supply)
    network.set_node_supply(sink, -all_work)
    assert network.solve() == network.OPTIMAL
    return network.optimal_cost() * grain / scale


def timed(act: Callable[[], Any], runs: int = 3) -> tuple[Any, float]:
    """The result of an action, and the shortest of its times in seconds."""
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        value = act()
        best = min(best, time.perf_counter() - start)
    return value, best


if __name__ == "__main__":
    main()
