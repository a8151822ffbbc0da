"""Guarantees of nested pools, with preemption, failures, slow starts and waits, at every step.

What is asserted stands in tests/conftest.py and tests/oracles/guarantees.py: no slot idles, no
pool lacks slots of its min share for longer than it tolerates, none gives below its share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.backends.simulated.backend import Fault, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch
from slotwise.core.job import PRIORITIES, Block, Job, Phase, Shuffle, Tasks
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from tiers import examples

EXAMPLES = examples(6, slow=1000)
NAMES = ("fair", "fair", "flex", "fifo", "flex-on-fair", "las", "uwfq")


@dataclass(frozen=True)
class Faults:
    """Some attempts fail, chosen by their names: always the same ones."""

    one_in: int

    def __call__(self, launch: Launch) -> Fault | None:
        """Whether this attempt fails."""
        dice = crc32(f"{launch.phase} {launch.task} {launch.attempt}".encode())
        return None if dice % self.one_in else Fault("it broke", after=dice % 5 / 5)


preemptions = st.builds(
    Preemption,
    least_after=st.sampled_from([0.0, 0.5, 2.0, float("inf")]),
    fair_after=st.sampled_from([0.0, 1.0, 3.0, float("inf")]),
    fraction=st.sampled_from([0.5, 2 / 3, 1.0]),
    grace=st.sampled_from([0.0, 0.25, 1.0]),
    jobs_after=st.sampled_from([None, None, 0.0, 1.0]),
)


BOTTOM = ("c", "a2", "b1", "a1x", "a1y")
"""Pools that never have others below them."""


@st.composite
def pool_trees(draw: st.DrawFn) -> list[Pool]:
    """Three pools at the top, of which two may have pools below them, and one of these, too."""
    pools = []
    for name, parent in (
        ("a", None), ("b", None), ("c", None), ("a1", "a"), ("a2", "a"), ("b1", "b"),
        ("a1x", "a1"), ("a1y", "a1"),
    ):  # fmt: skip
        if parent is not None and all(pool.name != parent for pool in pools):
            continue
        if parent is not None and name.endswith(("1", "x")) and draw(st.booleans()):
            break
        min_share = draw(st.sampled_from([0, 1, 1, 2, 3]))
        max_share = draw(st.sampled_from([None, None, 1, 3]))
        # A number alone is for all kinds together; pools at the bottom may tell maps apart.
        of_maps = draw(st.sampled_from([None, None, None, 0, 1])) if name in BOTTOM else None
        by_kind = {} if of_maps is None else {"map": of_maps}
        pools.append(
            Pool(
                name,
                weight=draw(st.sampled_from([1.0, 2.0, 0.3])),
                slots_min={"task": min_share} | by_kind,
                slots_max={}
                if max_share is None
                else {"task": max(min_share, max_share)} | dict.fromkeys(by_kind, 1),
                policy=draw(st.sampled_from(["fair", "fifo"])) if name in BOTTOM else "fair",
                parent=parent,
                jobs_max=draw(st.sampled_from([None, None, 1, 2])),
                job_weights=draw(st.sampled_from(["stated", "size"])),
                preemption=draw(st.none() | preemptions | preemptions | preemptions),
            )
        )
    return pools


@st.composite
def jobs_of(draw: st.DrawFn, pool: str, number: int, shuffle: Shuffle, cluster: Cluster) -> Job:
    """A job of maps, perhaps with homes, perhaps with reduces that come after them, and perhaps
    with more phases that wait for nothing."""
    count = draw(st.integers(1, 6))
    hosts = st.frozensets(st.sampled_from([*cluster.by_name]), min_size=1, max_size=2)
    blocks = tuple(Block(draw(hosts)) for _ in range(count)) if draw(st.booleans()) else ()
    seconds = st.sampled_from([0.2, 1.0, 2.5, 7.0])
    phases = [Phase("map", Tasks(count, draw(seconds), blocks), "map")]
    if draw(st.booleans()):
        tasks = Tasks(draw(st.integers(1, 4)), draw(seconds))
        copy = draw(st.sampled_from([0.0, 0.8]))
        phases.append(Phase("reduce", tasks, "reduce", frozenset({"map"}), copy=copy))
    for name in draw(st.sampled_from([(), (), ("more",), ("more", "most")])):
        tasks = Tasks(draw(st.integers(1, 4)), draw(seconds))
        kind, low = draw(st.sampled_from(["map", "reduce"])), draw(st.sampled_from([0, 0, 1]))
        phases.append(Phase(name, tasks, kind, slots_min=low))
    job = Job(
        f"j{number}",
        tuple(phases),
        arrival=draw(st.sampled_from([0.0, 0.0, 0.7, 2.0, 4.1])),
        pool=pool,
        weight=draw(st.sampled_from([1.0, 0.3, 5.0])),
        priority=draw(st.sampled_from(list(PRIORITIES))),
    )
    return shuffle.job(job, cluster)


@dataclass(frozen=True)
class Case:
    """All that makes a run."""

    jobs: tuple[Job, ...]
    cluster: Cluster
    pools: list[Pool]
    simulation: Simulation
    options: dict[str, object]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A cluster that pools share, with any of the ways in which they may."""
    slots = draw(st.sampled_from([{"task": 2}, {"map": 2, "reduce": 1}]))
    shuffle = draw(
        st.builds(Shuffle, slow_start=st.sampled_from([1.0, 0.5, 0.0]), split=st.booleans())
    )
    hosts = [
        Host(f"h{number}", slots, f"r{number % 2}", draw(st.sampled_from([1.0, 2.0])))
        for number in range(draw(st.integers(1, 3)))
    ]
    heartbeat = draw(st.sampled_from([0.0, 0.0, 0.3]))
    cluster = shuffle.cluster(Cluster(tuple(hosts), heartbeat))
    pools = draw(pool_trees())
    leaves = sorted({pool.name for pool in pools} - {pool.parent for pool in pools})
    names = draw(st.lists(st.sampled_from([*leaves, "other"]), min_size=1, max_size=6))
    jobs = tuple(
        draw(jobs_of(name, number, shuffle, cluster)) for number, name in enumerate(names)
    )
    one_in = draw(st.sampled_from([0, 0, 9, 4]))
    simulation = Simulation(
        seed=draw(st.integers(0, 9)),
        noise=draw(st.sampled_from([0.0, 0.6])),
        remote_factor=draw(st.sampled_from([1.0, 2.0])),
        fault=Faults(one_in) if one_in else None,
        save_seconds=draw(st.sampled_from([None, 0.1])),
    )
    assigner = draw(st.sampled_from(["greedy", "delay"]))
    options = {
        "assigner": assigner,
        "waits": draw(st.sampled_from([None, (0.4, 1.1)])) if assigner == "delay" else None,
        "name": draw(
            st.sampled_from(["fair", "fair", "flex", "fifo", "flex-on-fair", "las", "uwfq"])
        ),
    }
    return Case(jobs, cluster, pools, simulation, options)


@given(cases())
@settings(max_examples=2 * EXAMPLES)
def test_guarantees_hold_at_every_instant(simulated: Callable[..., object], case: Case) -> None:
    """Every step is checked; all jobs end; the same is decided again from the log."""
    watch = simulated(
        case.jobs, case.cluster, case.pools, simulation=case.simulation, **case.options
    )
    assert watch.state.is_done
    assert not watch.state.awaiting_admission
    assert watch.state.completed.keys() | watch.state.failed.keys() == {j.id for j in case.jobs}
    assert replay_log(watch.log).is_identical
    outcome = MetricsCollector.of_log(watch.log).outcome()
    value = outcome.metrics["value"]
    assert value is None or outcome.bound <= value + 1e-9
