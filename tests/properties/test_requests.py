"""Random phases whose tasks request memory, devices and a named resource beside slots.

Some use more memory than they request, and some must run on given hosts.

State and scheduler are checked at every turn (tests/conftest.py). Here the log is judged, by
code that shares nothing with the state.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties.test_pools import Faults
from properties.test_runs import OBJECTIVES, reread
from properties.test_wide import Case, check_slots, pools_of
from slotwise.backends.simulated.backend import Simulation
from slotwise.backends.simulated.simulation import Outage
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch
from slotwise.core.events import TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import PoolTree
from slotwise.core.ready_phases import ReadyPhases
from slotwise.core.resources import Resources
from slotwise.core.snapshot import Snapshot, TasksOnHost
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from slotwise.policy.assignment import offers, wide
from slotwise.policy.assignment.free_slots import Fitting
from slotwise.policy.scheduler import ALLOCATORS
from tiers import examples

EXAMPLES = examples(15, slow=2000)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One host on which every task fits, and perhaps smaller ones, some without resources."""
    kinds = draw(st.sampled_from([("task",), ("task",), ("map", "reduce")]))
    hosts = [Host("h0", dict.fromkeys(kinds, 4), "r0", resources=_all(8, 2, 4))]
    for number in range(1, draw(st.integers(1, 3))):
        amounts = [draw(st.integers(0, most)) for most in (8, 2, 4)]
        hosts.append(
            Host(
                f"h{number}",
                dict.fromkeys(kinds, draw(st.integers(1, 5))),
                f"r{number % 2}",
                draw(st.sampled_from([1.0, 2.0, 0.5])),
                resources=_all(*amounts),
            )
        )
    return Cluster(tuple(hosts), grace=draw(st.sampled_from([1.0, 30.0])))


def _all(memory: int, gpu: int, licenses: int) -> dict[str, Any]:
    return {"memory": memory, "gpu": gpu, "license": licenses}


def _half(needs: dict[str, Any]) -> dict[str, Any]:
    """What two tasks may request of the first host together."""
    return _all(min(needs["memory"], 4), min(needs["gpu"], 1), min(needs["license"], 2))


@st.composite
def jobs_of(draw: st.DrawFn, number: int, cluster: Cluster) -> Job:
    """One or two phases, some of which request something, or take several slots, or gangs."""
    phases: list[Phase] = []
    for place, kind in enumerate(draw(st.sampled_from([("map",), ("map", "reduce")]))):
        count, is_gang = draw(st.integers(1, 7)), draw(st.integers(0, 4)) == 0
        needs = {
            "memory": draw(st.sampled_from([0, 1, 2, 3, 5, 8])),
            "gpu": draw(st.sampled_from([0, 0, 0, 0.25, 0.4, 0.5, 1, 2])),
            "license": draw(st.sampled_from([0, 0, 1, 0.5, 3])),
        }
        seconds = draw(st.sampled_from([0.0, 0.3, 1.0, 2.5]))
        hosts = st.frozensets(st.sampled_from([*cluster.by_name]), min_size=1)
        has_homes = draw(st.booleans())
        phases.append(
            Phase(
                kind,
                Tasks(
                    1 if is_gang and number % 2 else min(count, 2) if is_gang else count,
                    seconds,
                    [Block(draw(hosts)) for _ in range(count)]
                    if has_homes and not is_gang
                    else (),
                    memory=draw(st.sampled_from([None, None, 2, 20])),
                    peaks=draw(st.sampled_from([None, None, 0, 2, 5, 8])),
                ),
                kind,
                frozenset(phase.name for phase in phases[:place]),
                slots_min=draw(st.sampled_from([0, 0, 1])),
                slots=draw(st.sampled_from([1, 1, 1, 2])),
                gang=is_gang,
                resources=_half(needs) if is_gang else needs,
                hosts=draw(hosts) | {"h0"} if not is_gang and draw(st.booleans()) else (),
            )
        )
    return Job(
        f"j{number}",
        tuple(phases),
        arrival=draw(st.sampled_from([0.0, 0.0, 0.7, 2.0, 4.1])),
        pool=draw(st.sampled_from(["a", "b", "c"])),
        weight=draw(st.sampled_from([1.0, 0.3, 5.0])),
    )


def limits() -> st.SearchStrategy[dict[str, Any]]:
    """Limits of a pool within which every task fits, and every gang."""
    of = {"memory": [8, 9, 12], "gpu": [2, 2.5], "license": [4, 4.5, 6]}
    return st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in of.items()})


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A cluster that all of them share in any of the ways in which they may."""
    cluster = draw(clusters())
    jobs = tuple(draw(jobs_of(number, cluster)) for number in range(draw(st.integers(1, 7))))
    pools = draw(pools_of(4))
    if draw(st.booleans()):
        pools = tuple(replace(pool, resources_max=draw(limits())) for pool in pools)
    one_in = draw(st.sampled_from([0, 0, 9, 4]))
    simulation = Simulation(
        seed=draw(st.integers(0, 9)),
        noise=draw(st.sampled_from([0.0, 0.6])),
        fault=Faults(one_in) if one_in else None,
        save_seconds=draw(st.sampled_from([None, 0.1])),
        outages=(Outage("h0", draw(st.sampled_from([0.4, 1.3])), 3.0),)
        * draw(st.integers(0, 1)),
    )
    assigner = draw(st.sampled_from(["greedy", "delay", "flow"]))
    options = {
        "name": draw(st.sampled_from(list(ALLOCATORS))),
        "assigner": assigner,
        "objective": draw(st.sampled_from(OBJECTIVES)),
        "waits": draw(st.sampled_from([None, (0.4, 1.1)])) if assigner == "delay" else None,
    }
    return Case(jobs, cluster, pools, simulation, options)


@given(cases())
@settings(max_examples=EXAMPLES)
def test_no_host_is_exceeded_and_nothing_waits_forever(
    simulated: Callable[..., Any], case: Case
) -> None:
    """All jobs end, no host and no pool has tasks that request more than it may, bounds hold.

    The log replays.
    """
    watch = simulated(
        case.jobs, case.cluster, case.pools, simulation=case.simulation, **case.options
    )
    state = watch.state
    assert state.completed.keys() | state.failed.keys() == {job.id for job in case.jobs}
    check_slots(case, watch.log)
    check_resources(case, watch.log)
    assert replay_log(reread(watch.log)).is_identical
    outcome = MetricsCollector.of_log(watch.log).outcome()
    value = outcome.metrics["value"]
    assert value is None or outcome.bound <= value, "no run is better than its bound"


@given(cases())
@settings(max_examples=EXAMPLES // 2)
@pytest.mark.slow
def test_decisions_do_not_depend_on_how_many_requests_differ(
    simulated: Callable[..., Any], case: Case
) -> None:
    """Those that fit are found one by one, or in a table."""

    def log_of() -> Log:
        return simulated(
            case.jobs, case.cluster, case.pools, simulation=case.simulation, **case.options
        ).log

    log = log_of()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offers, "MANY_NEEDS", 0)
        assert log_of().turns == log.turns


@given(cases(), st.sampled_from([1, 4]))
@settings(max_examples=EXAMPLES)
def test_decisions_do_not_depend_on_what_is_kept_between_them(
    simulated: Callable[..., Any], case: Case, hosts_a_wait: int
) -> None:
    """They are those of reading all waits, requests and hosts again at each decision."""

    def log_of() -> Log:
        return simulated(
            case.jobs, case.cluster, case.pools, simulation=case.simulation, **case.options
        ).log

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wide, "HOSTS_A_WAIT", hosts_a_wait)
        log = log_of()
        tasks_on = Snapshot.tasks_on
        patch.setattr(wide, "at_once", lambda phase: 0.0)
        patch.setattr(Fitting, "_exceeds_all", _fits_on_no_host)
        patch.setattr(ReadyPhases, "requests", lambda self: self.columns().request)

        def without_findings(self: Snapshot, host: str) -> TasksOnHost:
            tasks = tasks_on(self, host)
            tasks.known.clear()
            return tasks

        patch.setattr(Snapshot, "tasks_on", without_findings)
        assert log_of().turns == log.turns


def _fits_on_no_host(self: Fitting, slot_kind: str, needs: Resources) -> bool:
    snapshot = self._snapshot
    if not needs or snapshot.reserved(slot_kind):
        return False
    return not any(snapshot.spare.holds(host, needs) for host in snapshot.free(slot_kind))


def check_resources(case: Case, log: Log) -> None:
    """No host, device or pool has tasks that request more than it has, or may have."""
    tree, pool_of = PoolTree(case.pools).with_pools("abc"), {j.id: j.pool for j in case.jobs}
    phases = {PhaseId(job.id, p.name): p for job in case.jobs for p in job.phases}
    running: dict[tuple[PhaseId, int], Launch] = {}
    for turn in log.turns:
        for event in turn.events:
            if isinstance(event, TaskFinished | TaskFailed | TaskKilled):
                running.pop((event.phase, event.task), None)
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                running[decision.phase, decision.task] = decision
        held: Counter[tuple[str, str]] = Counter()
        of_device: defaultdict[tuple[str, int], Fraction] = defaultdict(Fraction)
        of_pool: defaultdict[tuple[str, str], Fraction] = defaultdict(Fraction)
        for launch in running.values():
            learned = {"memory": launch.memory} if launch.memory else {}
            needs = phases[launch.phase].needs.stated() | learned
            for name, amount in needs.items():
                held[launch.host, name] += Fraction(str(amount))  # type: ignore[assignment]
                for pool in tree.path(pool_of[launch.phase.job]):
                    of_pool[pool.name, name] += Fraction(str(amount))
            if gpus := Fraction(str(needs.get("gpu", 0))):
                assert len(set(launch.devices)) == max(1, gpus), "each task has its devices"
                for device in launch.devices:
                    of_device[launch.host, device] += min(gpus, Fraction(1))
            else:
                assert not launch.devices
        for (host, name), amount in held.items():
            has = case.cluster.by_name[host].resources.stated()  # type: ignore[attr-defined]
            assert amount <= has.get(name, 0), f"{host} has {amount} of {name} in use"
        for (name, resource), amount in of_pool.items():
            most = tree[name].resources_max.stated().get(resource, inf)
            assert amount <= most, f"pool {name} has {amount} of {resource} in use"
        for (host, device), part in of_device.items():
            has = case.cluster.by_name[host].resources.stated()  # type: ignore[attr-defined]
            assert part <= 1, f"device {device} of {host} is overcommitted"
            assert device < has["gpu"], "a device exists"
