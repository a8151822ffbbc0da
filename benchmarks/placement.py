"""The time to place the tasks of a round by minimum cost flow, beside the bare solver.

A round of 1,000 tasks on 200 hosts, 20,000 on 2,000, and 100,000 on 12,500, in one phase for
each 1,000 tasks. The whole decision starts from the state of a run and ends with the launches.
Goals for it: 10 ms, 150 ms, 1 s. Beside it: the order of phases alone, and the solvers alone on
the same arrays: a largest flow, which is enough if all inputs have one size or all tasks run
beside theirs, and a cheapest flow. First with all slots of one host in a hundred, then with one
free slot on each host, then with slots for all tasks; with three copies of each block, then
with one, so that not all tasks run beside their input, also with inputs of several sizes, and
with racks. All numbers are the processor time of this process, the least of `REPEATS` runs.

`scripts/bench placement 1000 200` measures one size only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from check import Result, serve
from measuring import LOOP, best_of, in_yardsticks, yardsticks
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality, Reallocate
from slotwise.core.events import JobArrived
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.placement import place_blocks
from slotwise.core.state import State
from slotwise.policy.assignment import flow_network
from slotwise.policy.assignment.flow import Flow
from slotwise.policy.assignment.flow_network import PlacementNetwork, place
from slotwise.policy.assignment.flow_round import Round

SIZES = ((1_000, 200), (20_000, 2_000), (100_000, 12_500))
RACK, PHASE, REPEATS = 40, 1_000, 3


def main() -> None:
    sizes = [tuple(map(int, sys.argv[1:3]))] if len(sys.argv) > 2 else SIZES
    print(
        f"{'tasks':>8} {'hosts':>7} {'launches':>8} {'remote':>7} {'decision':>10}"
        f" {'order':>10} {'largest':>10} {'cheapest':>10}"
    )
    for tasks, hosts in sizes:
        most = -(-tasks // hosts)
        show(state_of(tasks, hosts, most, 3, every=100), Flow(), "3 copies, 1 % of the slots")
        show(state_of(tasks, hosts, 1, 3), Flow(), "3 copies, a slot a host")
        show(state_of(tasks, hosts, most, 3), Flow(), "3 copies")
        show(state_of(tasks, hosts, most, 1), Flow(), "1 copy")
        show(state_of(tasks, hosts, most, 1, is_mixed=True), Flow(), "1 copy, several sizes")
        show(state_of(tasks, hosts, most, 1), Flow(core_cost=2), "1 copy, racks")


SIZES_DIFFER = (
    "the solver takes a fifth to a half; the order of phases and some 8 us for each launch the"
    " rest (docs/algorithms/min-cost-flow.md)"
)


def check() -> Iterator[Result]:
    """A round of 1,000 and of 20,000 tasks: 10 and 150 ms; with 1 % of the slots 1 and 15."""
    for tasks, hosts, goal in ((1_000, 200, 10.0), (20_000, 2_000, 150.0)):
        most = -(-tasks // hosts)
        for note, goal_of, flow, options in (
            ("1 % of the slots", goal / 10, Flow(), {"copies": 3, "every": 100}),
            ("3 copies", goal, Flow(), {"copies": 3}),
            ("racks", goal, Flow(core_cost=2), {"copies": 1}),
        ):
            state = state_of(tasks, hosts, most, **options)
            value = in_yardsticks(
                lambda f=flow, s=state: f.assign(s), 30 if tasks < 2_000 else 3
            )
            title = f"{tasks:,} tasks on {hosts:,} hosts, {note}"
            cause = SIZES_DIFFER if note == "racks" else ""
            yield Result(title, value, yardsticks(goal_of), LOOP, cause=cause)


def show(state: State, flow: Flow, note: str) -> None:
    launches = flow.assign(state)
    remote = sum(
        launch.locality is not Locality.NODE
        for launch in launches
        if isinstance(launch, Launch)
    )
    networks: list[PlacementNetwork] = []

    def kept(network: PlacementNetwork) -> flow_network.CheapestFlow:
        networks.append(network)
        return place(network)

    one = Round(state, "task", flow._delay.farthest, flow.core_cost)
    one.placed(state.turns("task", one.most).phases, kept)
    (network,) = networks
    times = (
        spent(lambda: flow.assign(state)),
        spent(lambda: state.turns("task", lambda phase: phase.pending)),
        spent(lambda: flow_network._largest(network)),
        spent(lambda: flow_network._cheapest(network)),
    )
    pending = sum(phase.pending for phase in state.ready("task"))
    print(
        f"{pending:8,} {len(state.cluster.hosts):7,} {len(launches):8,} {remote:7,}"
        + "".join(f" {1e3 * seconds:7,.0f} ms" for seconds in times)
        + f"  {note}"
    )


def spent(act: Callable[[], object]) -> float:
    """The least processor time of some calls, in seconds."""
    return best_of(act, REPEATS, clock=time.process_time)


def state_of(
    tasks: int, hosts: int, slots: int, copies: int, is_mixed: bool = False, every: int = 1
) -> State:
    """All jobs have arrived; one host in so many has all of its slots free, others none."""
    cluster = Cluster(
        tuple(
            Host(f"h{n}", {"other" if n % every else "task": slots}, f"r{n // RACK}")
            for n in range(hosts)
        )
    )
    jobs = [
        Job(f"j{number}", (Phase("map", Tasks(min(PHASE, tasks), 1.0)),))
        for number in range(max(1, tasks // PHASE))
    ]
    state = State(cluster)
    state.at(0.0)
    for number, job in enumerate(place_blocks(tuple(jobs), cluster, copies, 0, block_bytes=64)):
        if is_mixed:  # The last block of ten is smaller.
            (phase,) = job.phases
            blocks = tuple(
                replace(block, size_bytes=64 if place % 10 < 9 else 17 + number % 5)
                for place, block in enumerate(phase.tasks.blocks)
            )
            job = replace(
                job, phases=(replace(phase, tasks=replace(phase.tasks, blocks=blocks)),)
            )
        state.apply(JobArrived(0.0, job))
    share = hosts * slots / len(jobs)
    state.apply(Reallocate({PhaseId(job.id, "map"): share for job in jobs}, until=1e9))
    return state


if __name__ == "__main__":
    serve(main, check)
