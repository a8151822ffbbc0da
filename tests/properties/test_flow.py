"""What holds for every run with placement by minimum cost flow, under every allocator.

The cases are those of the other assigners: failures, limits, nested pools, wide and pinned
tasks, hosts that come and go, outages, lost outputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties import test_changing_hosts, test_lost_outputs, test_pools, test_wide
from properties.test_runs import (
    Case,
    cases,
    check_failures,
    check_hosts_and_shares,
    check_order,
    check_tasks,
    check_turns,
    reread,
)
from slotwise.api import simulate
from slotwise.backends.simulated.backend import Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Preempt
from slotwise.core.job import Job, Phase, Tasks
from slotwise.insight.replay import replay_log
from slotwise.policy.scheduler import ALLOCATORS
from slotwise.workload.workload import Placement, Workload
from tiers import examples

pytest.importorskip("ortools")

EXAMPLES = examples(4, slow=1000)

FLOWS = st.fixed_dictionaries(
    {
        "assigner": st.just("flow"),
        "waits": st.sampled_from([None, None, (0.0, 0.0), (0.4, 1.1), (0.0, 0.3)]),
        "core_cost": st.sampled_from([None, 1.0, 2.0, 2.5]),
    }
)
"""All options of the assigner."""

BY_FLOW = st.tuples(st.sampled_from(list(ALLOCATORS)), FLOWS)
"""An allocator, and options of the assigner."""


@given(cases(), BY_FLOW)
@settings(max_examples=EXAMPLES)
def test_every_run_is_right(
    run_case: Callable[[Case], Any], case: Case, flow: tuple[str, dict[str, object]]
) -> None:
    """All jobs end, each task once; hosts, shares and order are kept; the log replays."""
    if flow[0].startswith("flowflex"):  # It has its own objectives.
        case.options.pop("objective")
    case = replace(case, name=flow[0], options=case.options | flow[1])
    watch = run_case(case)
    log, state = watch.log, watch.state
    assert state.completed.keys() | state.failed.keys() == {job.id for job in case.jobs}
    check_tasks(case, log, state.completed, state.failed)
    check_hosts_and_shares(case, log)
    check_order(case, log)
    check_failures(case, log, state.failed)
    check_turns(case, log)
    assert replay_log(reread(log)).is_identical


@given(cases(), FLOWS, st.sampled_from([0.5, 100.0]))
@settings(max_examples=EXAMPLES)
def test_tasks_move_once(
    run_case: Callable[[Case], Any], case: Case, flow: dict[str, object], within: float
) -> None:
    """All jobs end, each task once; hosts, shares and order are kept; the log replays."""
    case = replace(case, options=case.options | flow | {"move_within": within})
    watch = run_case(case)
    log, state = watch.log, watch.state
    assert state.completed.keys() | state.failed.keys() == {job.id for job in case.jobs}
    check_tasks(case, log, state.completed, state.failed)
    check_hosts_and_shares(case, log)
    check_order(case, log)
    stops = Counter(
        (one.phase, one.task)
        for turn in log.turns
        for one in turn.decisions
        if isinstance(one, Preempt) and one.phase.job not in state.failed
    )
    assert set(stops.values()) <= {1}
    assert replay_log(reread(log)).is_identical


@given(cases(), FLOWS)
@settings(max_examples=EXAMPLES)
def test_the_same_run_has_the_same_log(
    run_case: Callable[[Case], Any], case: Case, flow: dict[str, object]
) -> None:
    """Ties are broken the same way each time."""
    case = replace(case, options=case.options | flow)
    one, other = run_case(case).log, run_case(case).log
    assert [turn.to_plain() for turn in one.turns] == [turn.to_plain() for turn in other.turns]


@pytest.mark.parametrize("options", [{}, {"waits": (1.0, 2.0)}, {"core_cost": 2.0}])
def test_blocks_that_were_placed_at_random_replay(options: dict[str, Any]) -> None:
    """The log lists the copies of each block in another order than the placement drew them."""
    hosts = tuple(Host(f"h{n}", {"task": 2}, "ba"[n % 2]) for n in (3, 1, 4, 2, 10, 9))
    jobs = tuple(Job(f"j{n}", (Phase("map", Tasks(30, 1.0)),), n / 2) for n in range(3))
    workload = Workload(jobs, Cluster(hosts), placement=Placement(3, block_bytes=64))
    truth = Simulation(seed=1, noise=0.4)
    result = simulate(workload, "fair", simulation=truth, assigner="flow", **options)
    assert replay_log(reread(result.log)).is_identical


@given(cases(), st.sampled_from([1.0, 2.0]))
@settings(max_examples=EXAMPLES)
def test_the_allocator_decides_who_gets_slots(
    run_case: Callable[[Case], Any], case: Case, core_cost: float
) -> None:
    """Until the first task ends, each phase launches as many tasks as under the greedy rule."""
    greedy = replace(case, options=case.options | {"assigner": "greedy", "waits": None})
    flow = replace(
        greedy, options=greedy.options | {"assigner": "flow", "core_cost": core_cost}
    )
    counts = []
    for one in greedy, flow:
        turn = run_case(one).log.turns[0]
        launches = [decision for decision in turn.decisions if isinstance(decision, Launch)]
        counts.append([launch.phase for launch in launches])
    assert Counter(counts[0]) == Counter(counts[1])


@given(test_pools.cases(), FLOWS)
@settings(max_examples=EXAMPLES)
def test_guarantees_of_pools_hold(
    simulated: Callable[..., Any], case: test_pools.Case, flow: dict[str, object]
) -> None:
    """Nested pools with limits, guarantees and preemption, and pinned tasks."""
    options = case.options | flow
    watch = simulated(
        case.jobs, case.cluster, case.pools, simulation=case.simulation, **options
    )
    assert watch.state.is_done
    assert replay_log(watch.log).is_identical


@given(test_wide.cases(), FLOWS)
@settings(max_examples=EXAMPLES)
def test_wide_tasks_are_served(
    simulated: Callable[..., Any], case: test_wide.Case, flow: dict[str, object]
) -> None:
    """All jobs with wide tasks end, and no host is exceeded."""
    options = case.options | flow
    watch = simulated(
        case.jobs, case.cluster, case.pools, simulation=case.simulation, **options
    )
    state = watch.state
    assert state.completed.keys() | state.failed.keys() == {job.id for job in case.jobs}
    test_wide.check_slots(case, watch.log)
    assert replay_log(reread(watch.log)).is_identical


@given(test_changing_hosts.cases().filter(lambda case: case.name in ALLOCATORS), FLOWS)
@settings(max_examples=EXAMPLES)
def test_hosts_may_come_and_go(
    simulated: Callable[..., Any], case: test_changing_hosts.Case, flow: dict[str, object]
) -> None:
    """Nothing is launched on a host that left; all jobs end, and fail only if they must."""
    options = flow | {"parameters": case.simulation.troubles(case.cluster, case.cluster)}
    watch = simulated(
        case.jobs, case.cluster, case.pools, case.name, case.simulation, **options
    )
    state = watch.state
    assert state.completed.keys() | state.failed.keys() == {job.id for job in case.jobs}
    for name, reason in state.failed.items():
        assert "leaves, where a task of phase second must run" in reason, name
    test_changing_hosts.follow(case, watch.log)
    assert replay_log(watch.log).is_identical


@given(test_lost_outputs.lossy().filter(lambda case: case.name in ALLOCATORS), FLOWS)
@settings(max_examples=EXAMPLES)
def test_what_is_lost_is_done_again(
    simulated: Callable[..., Any], case: Any, flow: dict[str, object]
) -> None:
    """Outages and lost outputs: all jobs are done, and the log replays."""
    options = flow | {"parameters": case.simulation.troubles(case.cluster, case.cluster)}
    watch = simulated(
        case.jobs, case.cluster, case.pools, case.name, case.simulation, **options
    )
    assert watch.state.completed.keys() == {job.id for job in case.jobs}
    assert replay_log(watch.log).is_identical
