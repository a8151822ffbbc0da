"""Shares that pools state for all kinds of slots together, in whole simulated runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Preempt
from slotwise.core.events import TaskEnded
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import Pool, Preemption
from slotwise.plans import plan
from slotwise.policy.scheduler import ALLOCATORS
from slotwise.workload.workload import Workload

Simulate = Callable[..., object]

KINDS = Cluster((Host("h1", {"map": 4, "reduce": 4}), Host("h2", {"map": 4, "reduce": 4})))


def job(name: str, kind: str, count: int, work: float = 100.0, **rest: object) -> Job:
    """A job of one phase of equal tasks."""
    return Job(name, (Phase("p", Tasks(count, work), kind),), **rest)


def held(log: Log) -> list[tuple[float, dict[str, int]]]:
    """The slots that each job holds at the end of each turn."""
    slots: Counter[str] = Counter()
    found = []
    for turn in log.turns:
        slots.subtract(e.phase.job for e in turn.events if isinstance(e, TaskEnded))
        slots.update(d.phase.job for d in turn.decisions if isinstance(d, Launch))
        found.append(
            (turn.now, {name: count for name, count in sorted(slots.items()) if count})
        )
    return found


def preempted(log: Log) -> list[tuple[float, str, int]]:
    """The tasks that were asked to stop: the instant, the job and the task."""
    return [
        (turn.now, decision.phase.job, decision.task)
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Preempt)
    ]


@pytest.mark.parametrize("name", list(ALLOCATORS))
def test_a_single_max_share_covers_all_kinds_together(simulated: Simulate, name: str) -> None:
    """A pool of three slots, maps and reduces for sixteen: it holds three, and no more."""
    jobs = [job("m", "map", 9, 2.0, pool="a"), job("r", "reduce", 9, 2.0, pool="a")]
    log = simulated(jobs, KINDS, [Pool("a", slots_max=3)], name=name).log
    totals = [sum(slots.values()) for _, slots in held(log)]
    assert max(totals) == 3
    assert totals[:-1] == [3] * (len(totals) - 1), "and no fewer while there is work"


@pytest.mark.parametrize("name", list(ALLOCATORS))
@pytest.mark.sampled(3)
def test_plans_hold_no_more_at_any_instant(name: str) -> None:
    """Maps, reduces and both in one job; fractions of slots are combined."""
    phases = (
        Phase("map", Tasks(5, 2.0), "map"),
        Phase("reduce", Tasks(4, 3.0), "reduce", frozenset({"map"})),
    )
    jobs = (
        job("m", "map", 9, 2.0, pool="a1"),
        job("r", "reduce", 9, 2.5, pool="a2"),
        Job("both", phases, pool="a1"),
        job("o", "map", 9, 2.0, pool="b"),
    )
    pools = (
        Pool("a", slots_max=3),
        Pool("a1", 2.0, slots_min=1, slots_max=2, parent="a"),
        Pool("a2", parent="a"),
    )
    pieces = plan(Workload(jobs, KINDS, pools), name, budget_steps=50).schedule.pieces
    for members, max_share in ((("m", "r", "both"), 3), (("m", "both"), 2)):
        mine = [piece for piece in pieces if piece.phase.job in members]
        for instant in {piece.start for piece in mine}:
            slots = sum(p.slots for p in mine if p.start <= instant < p.end)
            assert slots <= max_share


def test_kinds_take_turns_at_a_number_that_is_too_small_for_both(simulated: Simulate) -> None:
    """A single slot is a map slot half of the time, and half of the time a reduce slot."""
    jobs = [job("m", "map", 4, 1.0, pool="a"), job("r", "reduce", 4, 1.0, pool="a")]
    log = simulated(jobs, KINDS, [Pool("a", slots_max=1)]).log
    assert [next(iter(slots)) for _, slots in held(log)[:-1]] == ["m", "r"] * 4


def test_the_first_job_goes_first_whatever_its_kind(simulated: Simulate) -> None:
    """Under FIFO the maps wait for the reduces that came before."""
    jobs = [job("r", "reduce", 4, 1.0, pool="a"), job("m", "map", 2, 1.0, pool="a")]
    log = simulated(jobs, KINDS, [Pool("a", slots_max=2)], name="fifo").log
    assert held(log) == [(0.0, {"r": 2}), (1.0, {"r": 2}), (2.0, {"m": 2}), (3.0, {})]


def test_a_guarantee_for_all_kinds_is_taken_back_once(simulated: Simulate) -> None:
    """The other pool's tasks hold all slots of both kinds: three are asked to stop, not six."""
    pools = [Pool("b"), Pool("a", slots_min=3, preemption=Preemption(least_after=5.0))]
    jobs = [job(f"b {kind}", kind, 8, pool="b") for kind in ("map", "reduce")]
    jobs += [job(f"a {kind}", kind, 8, pool="a", arrival=1.0) for kind in ("map", "reduce")]
    log = simulated(jobs, KINDS, pools).log
    assert [at for at, _, _ in preempted(log)] == [6.0] * 3
    slots = dict(held(log))[6.0]
    assert sum(count for name, count in slots.items() if name.startswith("a")) == 3


def test_slots_of_one_kind_meet_a_guarantee_for_all(simulated: Simulate) -> None:
    """Three reduces are three slots: nothing is taken back for the maps that come later."""
    pools = [Pool("b"), Pool("a", slots_min=3, preemption=Preemption(least_after=5.0))]
    jobs = [
        job("r", "reduce", 3, 1000.0, pool="a"),
        job("o", "map", 8, 200.0, pool="b"),
        job("m", "map", 8, pool="a", arrival=1.0),
    ]
    assert preempted(simulated(jobs, KINDS, pools).log) == []


def test_a_shortage_continues_when_its_kind_changes(simulated: Simulate) -> None:
    """From 1 on it lacks two map slots. From 6 on they may be of either kind. Its clock
    does not restart: at 11 its ten seconds are over."""
    pools = [Pool("b"), Pool("a", slots_min=2, preemption=Preemption(least_after=10.0))]
    jobs = [job(f"b {kind}", kind, 8, pool="b") for kind in ("map", "reduce")]
    jobs += [
        job("m", "map", 8, pool="a", arrival=1.0),
        job("r", "reduce", 8, pool="a", arrival=6.0),
    ]
    assert [at for at, _, _ in preempted(simulated(jobs, KINDS, pools).log)] == [11.0] * 2


FULL = (
    Pool("p", slots_max=3),
    Pool("c", slots_min=1, parent="p", preemption=Preemption(least_after=2.0)),
    Pool("d", parent="p"),
)


def test_in_a_full_pool_slots_of_another_kind_make_room(simulated: Simulate) -> None:
    """Map slots are free, but the reduces of d are all that the pool around both may hold."""
    jobs = [job("d", "reduce", 9, pool="d"), job("c", "map", 9, pool="c", arrival=1.0)]
    log = simulated(jobs, KINDS, FULL).log
    assert preempted(log) == [(3.0, "d", 2)]
    assert dict(held(log))[3.0] == {"c": 1, "d": 2}


def test_room_and_a_slot_may_come_from_different_pools(simulated: Simulate) -> None:
    """All map slots are held elsewhere, too: one is taken there, and one from d for room."""
    jobs = [
        job("d", "reduce", 9, pool="d"),
        job("o", "map", 8, pool="o"),
        job("c", "map", 9, pool="c", arrival=1.0),
    ]
    log = simulated(jobs, KINDS, FULL).log
    assert sorted(preempted(log)) == [(3.0, "d", 2), (3.0, "o", 7)]
    assert dict(held(log))[3.0] == {"c": 1, "d": 2, "o": 7}


def test_nothing_is_taken_for_what_a_full_pool_below_cannot_hold(
    simulated: Simulate,
) -> None:
    """Pool p should have a map slot, too, but the two reduces of c are all that c may hold."""
    taking = Preemption(least_after=0.0, fair_after=0.0)
    pools = [Pool("p", preemption=taking), Pool("c", slots_max=2, parent="p")]
    jobs = [
        job("r", "reduce", 4, pool="c"),
        job("o", "map", 16, pool="o"),
        job("m", "map", 4, pool="c", arrival=1.0),
    ]
    log = simulated(jobs, KINDS, pools).log
    assert preempted(log) == []
    assert dict(held(log))[100.0] == {"m": 1, "o": 7, "r": 1}


def test_reduces_do_not_begin_early_where_that_could_block_their_maps(
    simulated: Simulate,
) -> None:
    """The pool may hold two slots. Two early reduces would wait for maps that cannot run."""
    phases = (
        Phase("map", Tasks(3, 1.0), "map"),
        Phase("reduce", Tasks(2, 1.0), "reduce", frozenset({"map"}), slow_start=0.1, copy=0.5),
    )
    pools = [Pool("a", slots_max=2), Pool("b", slots_max={"map": 2, "reduce": 2})]
    jobs = [Job(name, phases, pool=name) for name in "ab"]
    log = simulated(jobs, KINDS, pools).log
    begun = {
        name: next(
            turn.now
            for turn in log.turns
            for d in turn.decisions
            if isinstance(d, Launch) and d.phase == (name, "reduce")
        )
        for name in "ab"
    }
    assert begun == {"a": 2.0, "b": 1.0}
