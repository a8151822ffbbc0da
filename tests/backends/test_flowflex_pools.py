"""FlowFlex in simulated runs of any kind: pools, slow starts, failures, noise, late arrivals.

What is asserted at every instant stands in tests/conftest.py and tests/oracles/guarantees.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.dags import OBJECTIVES, flows
from oracles.dags import Flows as Drawn
from properties.test_pools import Case, Faults, cases
from slotwise.backends.simulated.backend import Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Phase, Shuffle, Tasks
from slotwise.core.objective import Objective
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from tiers import examples

Simulate = Callable[..., object]

NAMES = ("flowflex", "flowflex-fast", "flowflex-paper")
EXAMPLES = examples(30, slow=1000)


@pytest.fixture(autouse=True, scope="module")
def quickly() -> object:
    """Little search at each decision: there are thousands of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slotwise.policy.flowflex.allocator.BUDGET_SECONDS", 1e-4)
        yield


@settings(max_examples=EXAMPLES // 10)
@given(cases(), st.sampled_from(NAMES))
def test_guarantees_hold_at_every_instant(simulated: Simulate, case: Case, name: str) -> None:
    """Every step is checked; all jobs end; the same is decided again from the log."""
    options = {**case.options, "name": name}
    watch = simulated(
        case.jobs, case.cluster, case.pools, simulation=case.simulation, **options
    )
    assert watch.state.completed.keys() | watch.state.failed.keys() == {j.id for j in case.jobs}
    assert replay_log(watch.log).is_identical


@settings(max_examples=EXAMPLES // 10)
@given(
    flows(jobs_most=4, phases_most=6, total_most=14, widest=False, mixed=True, with_zero=True),
    st.sampled_from(NAMES),
    st.sampled_from(OBJECTIVES),
    st.lists(st.sampled_from([0.0, 0.0, 3.0, 50.0]), min_size=4, max_size=4),
    st.booleans(),
)
def test_flows_of_any_shape_end(
    simulated: Simulate,
    drawn: Drawn,
    name: str,
    objective: Objective,
    arrivals: list[float],
    is_troubled: bool,
) -> None:
    """Every metric; some come late, some have phases without work, tasks fail and take longer.

    No value is below its bound, and the log explains every decision.
    """
    jobs = [replace(job, arrival=at) for job, at in zip(drawn.jobs, arrivals, strict=False)]
    trouble = Simulation(noise=0.5, fault=Faults(7)) if is_troubled else Simulation()
    watch = simulated(
        jobs, drawn.cluster, name=name, objective=objective, simulation=trouble,
        epoch_seconds=5.0,
    )  # fmt: skip
    assert watch.state.completed.keys() | watch.state.failed.keys() == {j.id for j in jobs}
    assert replay_log(watch.log).is_identical
    outcome = MetricsCollector.of_log(watch.log).outcome()
    value = outcome.metrics["value"]
    assert value is None or outcome.bound <= value + 1e-9 * (1 + abs(value))


@pytest.mark.parametrize("name", ["flowflex-fast", "flowflex-paper"])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("slots", [{"map": 3, "reduce": 2}, {"task": 4}])
def test_reduces_begin_early_beside_maps(
    simulated: Simulate, name: str, split: bool, slots: dict[str, int]
) -> None:
    """Slow start, with copying split off or not, on separate or common slots."""
    shuffle = Shuffle(slow_start=0.25, split=split)
    cluster = shuffle.cluster(Cluster((Host("h", slots),)))
    jobs = [
        shuffle.job(
            Job(
                f"j{number}",
                (
                    Phase("map", Tasks(6, 1.0), "map"),
                    Phase("reduce", Tasks(3, 2.0), "reduce", frozenset({"map"}), copy=0.5),
                    Phase("next", Tasks(2, 1.0), "map", frozenset({"reduce"})),
                    Phase("last", Tasks(1, 1.0), "reduce", frozenset({"next"}), copy=0.1),
                ),
                arrival=float(number),
            ),
            cluster,
        )
        for number in range(examples(2, slow=4))
    ]
    watch = simulated(jobs, cluster, name=name, simulation=Simulation(noise=0.3))
    assert watch.state.completed.keys() == {job.id for job in jobs}
    assert replay_log(watch.log).is_identical
