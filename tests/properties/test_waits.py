"""Waits for locality count only while slots are offered: Hadoop's rule, on random runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.hadoop_waits import check_waits
from properties.test_runs import Case, cases, reread
from slotwise.backends.simulated.backend import Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Block, Job, Phase, Tasks
from slotwise.core.pools import Pool
from slotwise.insight.replay import replay_log
from slotwise.policy.assignment.delay import LEVELS
from tiers import examples

NOWHERE: frozenset[str] = frozenset()


@st.composite
def queues(draw: st.DrawFn) -> Case:
    """Jobs with input on one host for each task, and more tasks than slots: phases queue."""
    rng = Random(draw(st.integers(0, 2**32)))
    slots = rng.choice([1, 1, 2])
    hosts = [Host(f"h{n}", {"task": slots}, f"r{n % 2}") for n in range(rng.randint(3, 6))]
    jobs = []
    for number in range(rng.randint(4, 9)):
        tasks = rng.randint(1, 8)
        homes = [frozenset({rng.choice(hosts).name}) for _ in range(tasks)]
        if (
            rng.random() < 0.3
        ):  # Some tasks have no input, or input on a host that is not there.
            homes = [rng.choice([home, home, NOWHERE, frozenset({"gone"})]) for home in homes]
        blocks = tuple(map(Block, homes)) if rng.random() < 0.8 else ()
        work = tuple(rng.choice([0.3, 1.0, 1.7, 2.5]) for _ in range(tasks))
        phase = Phase("map", Tasks(tasks, work, blocks))
        arrival = rng.choice([0.0, 0.0, 0.5, 3.0])
        jobs.append(Job(f"j{number}", (phase,), arrival, pool=rng.choice("ab")))
    limits = rng.choice([{}, {}, {"task": 1}, {"task": 2}])
    truth = Simulation(seed=rng.randint(0, 9), noise=rng.choice([0.0, 0.4]))
    waits = rng.choice([(0.6, 1.1), (1.0, 2.0), (0.0, 1.5), (2.0, 2.0)])
    levels = rng.choice(LEVELS)
    options: dict[str, object] = {"assigner": "delay", "waits": waits, "levels": levels}
    pools = (Pool("a", 1.0, {}, limits),)
    name = rng.choice(["fifo", "fair"])
    return Case(tuple(jobs), Cluster(tuple(hosts)), pools, name, truth, options)


@given(cases() | queues())
@settings(max_examples=examples(40, slow=3000))
def test_waits_follow_the_rule_of_hadoop(
    run_case: Callable[[Case], object], case: Case
) -> None:
    """No launch is farther from its input than its wait allows, and none later."""
    options = {**case.options, "assigner": "delay"}
    options["waits"] = options["waits"] or (5.0, 10.0)
    check_waits(run_case(replace(case, options=options)).log, *options["waits"])


@given(queues())
@settings(max_examples=examples(15, slow=1000))
def test_waits_of_flow_follow_it_too(run_case: Callable[[Case], object], case: Case) -> None:
    """Placement by minimum cost flow has the same waits."""
    pytest.importorskip("ortools")
    options = {**case.options, "assigner": "flow"}
    log = run_case(replace(case, options=options)).log
    check_waits(log, *options["waits"], by_round=True)
    assert replay_log(reread(log)).is_identical


@given(queues())
@settings(max_examples=examples(15, slow=1000))
def test_runs_with_waits_replay(run_case: Callable[[Case], object], case: Case) -> None:
    """The log, written as text and read again, tells which waits stood still, and when."""
    found = replay_log(reread(run_case(case).log))
    assert found.is_identical
