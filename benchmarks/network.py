"""The speed of starting and ending flows, and of placing and indexing blocks.

All results are ratios of one run.

First the fluid network: a number of flows at once between 3,000 hosts in 75 racks, each end
followed by a new start, where only hosts have limits and where the core is full, compared with
recomputing all rates at each change. Then the blocks of a phase of a million tasks. Then a
simulated run with a network, as a ratio to the same run without one.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from measuring import best_of
from slotwise.backends.simulated import network as network_module
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.backends.simulated.network import FlowNetwork, Links, rates_of_few, rates_of_many
from slotwise.core.cluster import Cluster, Host, Network
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import run
from slotwise.core.placement import place_blocks
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler

HOSTS, RACK = 3_000, 40
BYTES, HOST = 64 << 20, 125_000_000.0
CLUSTER = Cluster(
    tuple(Host(f"h{n:04}", {"task": 2}, rack=f"r{n // RACK:02}") for n in range(HOSTS))
)
NETWORKS = {
    "hosts only": Network(host=HOST),
    "racks 10 x host": Network(host=HOST, rack=10 * HOST),
    "core full": Network(host=HOST, rack=10 * HOST, core=20 * HOST),
}


def main() -> None:
    changes()
    print()
    filling()
    print()
    blocks()
    print()
    runs()


def changes() -> None:
    columns = ("flows at once", "network", "an end and a start", "x if all again")
    print("{:>14} {:>18} {:>20} {:>14}".format(*columns))
    for count in (10, 100, 1_000, 6_000):
        for name, network in NETWORKS.items():
            mine = seconds_a_change(network, count)
            few, network_module.FEW = network_module.FEW, -1
            whole = seconds_a_change(network, count)
            network_module.FEW = few
            print(f"{count:14} {name:>18} {mine * 1e6:17.0f} us {whole / mine:14.1f}")


def seconds_a_change(network: Network, count: int) -> float:
    """The time for one flow that ends and one that starts, with this number under way."""
    rng, fluid = np.random.default_rng(1), FlowNetwork(CLUSTER, network)
    hosts, key, now = CLUSTER.hosts, 0, 0.0

    def start() -> None:
        nonlocal key
        source, target = rng.integers(0, HOSTS, 2)
        size = BYTES * float(rng.uniform(0.5, 1.5))
        fluid.start(now, key, hosts[source].name, hosts[target].name, size)
        key += 1

    for _ in range(count):
        start()
    fluid.next_end()
    ends, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < 0.4:
        coming = fluid.next_end()
        assert coming is not None
        now = coming[0]
        for _ in fluid.advance(now):
            start()
            ends += 1
    return (time.perf_counter() - begun) / ends


def filling() -> None:
    print(f"{'flows':>8} {'numpy':>12} {'python / numpy':>15}   (all rates, core full)")
    links = Links(CLUSTER, NETWORKS["core full"])
    for count in (8, 16, 24, 32, 64, 256, 1_000, 6_000):
        rng, table = np.random.default_rng(1), np.full((count, 5), links.nowhere)
        paths = []
        for row in table:
            source, target = (CLUSTER.hosts[n].name for n in rng.integers(0, HOSTS // 8, 2))
            paths.append(links.path(source, target)[0])
            row[: len(paths[-1])] = paths[-1]
        capacity = np.array(links.capacity)
        many = best_of(partial(rates_of_many, table, capacity), 2, 0.3)
        few = best_of(partial(rates_of_few, paths, links.capacity), 2, 0.3)
        print(f"{count:8} {many * 1e6:9.0f} us {few / many:15.2f}")


def blocks(count: int = 1_000_000) -> None:
    jobs = (Job("a", (Phase("map", Tasks(count, 1.0)),)),)
    begun = time.perf_counter()
    placed = place_blocks(jobs, CLUSTER, 3, 1)[0].phases[0].tasks.blocks
    placed[0]
    drawn = time.perf_counter() - begun
    index = best_of(placed.homes_by_host, 2, 0.3)  # type: ignore[attr-defined]
    racks = best_of(placed.homes_by_rack, 2, 0.3)  # type: ignore[attr-defined]

    def one_by_one() -> dict[str, list[int]]:
        homes: dict[str, list[int]] = {}
        for task in range(count - 1, -1, -1):
            for host in placed[task].hosts:
                homes.setdefault(host, []).append(task)
        return homes

    slow = best_of(one_by_one, 2, 0.3)
    print(f"{count:,} blocks x 3 copies on {HOSTS:,} hosts: drawn in {drawn:.2f} s,", end=" ")
    print(f"by host in {index:.2f} s, by rack in {racks:.2f} s;", end=" ")
    print(f"block by block {slow / index:.0f} x")


def runs() -> None:
    """Twenty jobs of 500 tasks that read, on 100 hosts, under FAIR and delay scheduling."""
    cluster = Cluster(
        tuple(Host(f"h{n:02}", {"task": 2}, rack=f"r{n // 20}") for n in range(100))
    )
    jobs = tuple(Job(f"j{n}", (Phase("map", Tasks(500, 20.0)),), float(n)) for n in range(20))
    placed = place_blocks(jobs, cluster, 3, 1, block_bytes=BYTES)

    def seconds(assigner: str, network: Network | None) -> float:
        def once() -> None:
            backend = SimulatedBackend(cluster, placed, Simulation(noise=0.3, network=network))
            state = State(cluster, ())
            run(make_scheduler("fair", assigner), backend, state, lambda *_: None)

        return best_of(once, 2, 1.0)

    for assigner in ("greedy", "delay"):
        plain = seconds(assigner, None)
        print(f"a run of 10,000 tasks, {assigner}: {plain:.2f} s without a network", end="")
        for name, network in NETWORKS.items():
            print(f"; {name} {seconds(assigner, network) / plain:.2f} x", end="")
        print()


if __name__ == "__main__":
    main()
