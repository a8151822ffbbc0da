"""Which tasks run next to their input: a minimum cost flow (Hammr 6.2, Quincy).

The network, from a source to a sink, with a unit of flow for each task to launch:

    source -> phase -> group -> task -> host -> (rack ->) sink
                       group -> sink              X, the cluster; or unscheduled
                                task -> rack      with racks

A group is the tasks of one phase with inputs of one size. A unit that takes the edge of its
group to the sink stands for a task of the group that reads remotely, or for one that is not
launched, if its phase accepts no remote slot now. It needs no host in the network: the units
fit into the free slots together, so any slot that is left over will do. docs/algorithms/
min-cost-flow.md proves that this is the network of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from slotwise.core.task_homes import Integers

MAX_PRICE = 2**40
"""The highest price; the solver multiplies prices by the number of vertices."""


@dataclass(frozen=True, slots=True)
class Racks:
    """Racks, as numbers, and what it costs to read from another host of the same rack.

    of_host       the rack of each host
    tasks, racks  the edges: entry i joins a task with a rack that holds its input
    prices        of each of these edges
    """

    of_host: Integers
    tasks: Integers
    racks: Integers
    prices: Integers


@dataclass(frozen=True, slots=True)
class PlacementNetwork:
    """The network of one round. Phases, groups, tasks and hosts are numbered from 0.

    launches      the units of each phase
    phase_of      the phase of each group
    most          the units that may take the edge of each group to the sink
    prices        of these edges, above 0
    group_of      the group of each task
    tasks, hosts  the local edges: entry i joins a task with a host that holds its input. They
                  cost nothing
    room          the free slots of each host
    """

    launches: Integers
    phase_of: Integers
    most: Integers
    prices: Integers
    group_of: Integers
    tasks: Integers
    hosts: Integers
    room: Integers
    racks: Racks | None = None


@dataclass(frozen=True, slots=True)
class CheapestFlow:
    """A cheapest flow.

    host    the host of each task that runs next to its input; -1 for others
    rack    the rack of each task that runs in a rack that holds its input; -1 for others
    remote  the units of each group on the edge to the sink
    """

    host: Integers
    rack: Integers
    remote: Integers


def place(network: PlacementNetwork) -> CheapestFlow:
    """A cheapest flow; always the same for the same network.

    A largest flow on the local edges is several times faster to find. It is cheapest if it
    leaves no unit over, or if all units that are left over cost the same.
    """
    found = _largest(network)
    has_one_price = network.racks is None and (network.prices == network.prices[:1]).all()
    return found if has_one_price or not found.remote.any() else _cheapest(network)


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The first vertex of each kind."""

    sink: int
    phase: int
    group: int
    task: int
    host: int
    rack: int

    @classmethod
    def of(cls, network: PlacementNetwork) -> _Numbers:
        phase, group = 1, 1 + len(network.launches)
        task = group + len(network.phase_of)
        host = task + len(network.group_of)
        return cls(0, phase, group, task, host, host + len(network.room))


def _largest(network: PlacementNetwork) -> CheapestFlow:
    """Maximum flow on the local edges. The units of a phase that are left over are remote, and
    counted for the only group of the phase; with several groups, only whether there are any."""
    from ortools.graph.python.max_flow import SimpleMaxFlow

    at = _Numbers.of(network)
    source, flow = at.rack, SimpleMaxFlow()
    add = flow.add_arcs_with_capacity
    phases, groups, tasks, edges, hosts = _counts(network)
    add(np.full(phases, source), at.phase + np.arange(phases), network.launches)
    inside = add(at.phase + network.phase_of, at.group + np.arange(groups), network.most)
    add(at.group + network.group_of, at.task + np.arange(tasks), np.ones(tasks, np.int64))
    local = add(at.task + network.tasks, at.host + network.hosts, np.ones(edges, np.int64))
    add(at.host + np.arange(hosts), np.full(hosts, at.sink), network.room)
    status = flow.solve(source, at.sink)
    assert status == flow.OPTIMAL, f"there is a largest flow, not {status}"
    left = network.launches - np.bincount(
        network.phase_of, np.asarray(flow.flows(inside)), phases
    ).astype(np.int64)
    return CheapestFlow(
        _chosen(network.tasks, network.hosts, flow.flows(local), tasks),
        np.full(tasks, -1),
        left[network.phase_of],
    )


def _cheapest(network: PlacementNetwork) -> CheapestFlow:
    """Minimum cost flow."""
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

    at, racks = _Numbers.of(network), network.racks
    flow = SimpleMinCostFlow()
    add = flow.add_arcs_with_capacity_and_unit_cost
    phases, groups, tasks, edges, hosts = _counts(network)
    unit = _unit(network)
    free, one = partial(np.zeros, dtype=np.int64), partial(np.ones, dtype=np.int64)
    group = at.group + np.arange(groups)
    add(at.phase + network.phase_of, group, network.most, free(groups))
    add(at.group + network.group_of, at.task + np.arange(tasks), one(tasks), free(tasks))
    local = add(at.task + network.tasks, at.host + network.hosts, one(edges), free(edges))
    remote = add(group, np.full(groups, at.sink), network.most, -(-network.prices // unit))
    host = at.host + np.arange(hosts)
    in_rack: Any = None
    if racks is None:
        add(host, np.full(hosts, at.sink), network.room, free(hosts))
    else:
        count = int(racks.of_host.max()) + 1
        room = np.bincount(racks.of_host, network.room, count).astype(np.int64)
        add(host, at.rack + racks.of_host, network.room, free(hosts))
        pairs = at.task + racks.tasks, at.rack + racks.racks
        in_rack = add(*pairs, one(len(racks.tasks)), -(-racks.prices // unit))
        add(at.rack + np.arange(count), np.full(count, at.sink), room, free(count))
    flow.set_nodes_supplies(at.phase + np.arange(phases), network.launches)
    flow.set_node_supply(at.sink, -int(network.launches.sum()))
    status = flow.solve()
    assert status == flow.OPTIMAL, f"the network has a cheapest flow, not {status}"
    return CheapestFlow(
        _chosen(network.tasks, network.hosts, flow.flows(local), tasks),
        np.full(tasks, -1)
        if racks is None
        else _chosen(racks.tasks, racks.racks, flow.flows(in_rack), tasks),
        np.asarray(flow.flows(remote)),
    )


def _counts(network: PlacementNetwork) -> tuple[int, int, int, int, int]:
    sizes = (
        network.launches,
        network.phase_of,
        network.group_of,
        network.tasks,
        network.room,
    )
    phases, groups, tasks, edges, hosts = map(len, sizes)
    return phases, groups, tasks, edges, hosts


def _unit(network: PlacementNetwork) -> int:
    """The greatest common divisor of all prices, or more if they are very high."""
    prices = network.prices
    if network.racks is not None:
        prices = np.concatenate([prices, network.racks.prices])
    return max(int(np.gcd.reduce(prices)), -(-int(prices.max()) // MAX_PRICE))


def _chosen(tasks: Integers, ends: Integers, flows: Any, count: int) -> Integers:
    """The end of the edge that carries flow, for each task; -1 without one."""
    chosen = np.full(count, -1)
    used = np.asarray(flows) > 0
    chosen[tasks[used]] = ends[used]
    return chosen
