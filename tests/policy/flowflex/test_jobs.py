"""Jobs as flows: whole jobs, and the remaining phases of jobs that have begun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.dags import Flows as Drawn
from oracles.dags import flows
from slotwise.core.cluster import Cluster, Host
from slotwise.core.estimation import DEFAULT_WORK
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.objective import Hinge, Line, Objective, Steps
from slotwise.policy.allocator import Claims, Group
from slotwise.policy.flowflex.allocator import FlowsLeft, Place, flows_left, whole_flows
from tiers import examples

EXAMPLES = examples(20, slow=1000)
TEN = Cluster.of_slots(10)
TWO_KINDS = Cluster((Host("h", {"map": 6, "reduce": 3}),))
RESPONSE = Objective("response")
ANY = "task"


def phase(name: str, work: float | None, max_share: int, *after: str, kind: str = ANY) -> Phase:
    """A phase with this number of equal tasks."""
    each = None if work is None else work / max_share
    return Phase(name, Tasks(max_share, each), kind, after=frozenset(after))


def claims(
    cluster: Cluster,
    ready: Sequence[tuple[Job, str, float, float]],
    kind: str = ANY,
    now: float = 0.0,
) -> Claims:
    """Claims of ready phases: the job, the phase's name, its work left, its max share."""
    return Claims(
        cluster.capacity[kind],
        weight=[1.0] * len(ready),
        arrival=[job.arrival for job, *_ in ready],
        work=[work for _, _, work, _ in ready],
        min_share=[0.0] * len(ready),
        max_share=[max_share for *_, max_share in ready],
        group=[0] * len(ready),
        groups=[Group(1.0, 0.0, float("inf"))],
        owner=[(job, job.by_name[name]) for job, name, *_ in ready],
        cluster=cluster,
        now=now,
    )


def left_of(*ready: tuple[Job, str, float, float]) -> FlowsLeft:
    """The remaining flows on a cluster of ten slots of one kind."""
    return flows_left({ANY: claims(TEN, ready)}, RESPONSE)


DIAMOND = Job(
    "d",
    (
        phase("a", 8, 4),
        phase("b", 6, 2, "a"),
        phase("c", 9, 30, "a"),
        phase("e", 2, 1, "b", "c"),
    ),
)


def test_a_whole_job_is_a_flow_of_its_phases() -> None:
    """Work, max shares cut to the cluster, and precedence."""
    problem, ids = whole_flows([DIAMOND], TEN, RESPONSE)
    assert ids == [PhaseId("d", name) for name in "abce"]
    assert problem.work.tolist() == [8, 6, pytest.approx(9), 2]
    assert problem.max_share.tolist() == [4, 2, 10, 1]
    assert list(problem.before) == [(), (0,), (0,), (1, 2)]
    assert list(problem.costs) == [Line(1.0, 0.0)]


def test_phases_are_taken_in_the_order_in_which_they_can_be_done() -> None:
    """In any order in the file."""
    turned = replace(DIAMOND, phases=DIAMOND.phases[::-1])
    problem, ids = whole_flows([turned, replace(DIAMOND, id="f")], TEN, RESPONSE)
    assert [name.phase for name in ids[:4]] == ["a", "c", "b", "e"]
    assert list(problem.before)[4:] == [(), (4,), (4,), (5, 6)]
    assert problem.flow.tolist() == [0] * 4 + [1] * 4


@settings(max_examples=EXAMPLES // 2)
@given(flows(mixed=True), st.sampled_from(["response", "tardiness", "sla"]))
def test_jobs_that_have_not_begun_keep_all_their_work(drawn: Drawn, penalty: str) -> None:
    """With the claims of their first phases, the flows left are the whole flows."""
    objective = Objective(penalty)
    whole, ids = whole_flows(drawn.jobs, drawn.cluster, objective)
    ready = [
        (job, one.name, one.tasks.work_total(), min(one.slots_most, drawn.slots))
        for job in drawn.jobs
        for one in job.phases
        if not one.waits_for
    ]
    left = flows_left({ANY: claims(drawn.cluster, ready)}, objective)
    for name in ("work", "max_share", "flow", "kind", "capacity"):
        assert getattr(left.flows, name).tolist() == getattr(whole, name).tolist()
    assert [set(one) for one in left.flows.before] == [set(one) for one in whole.before]
    assert list(left.flows.costs) == list(whole.costs)
    named = {(job.id, name): number for number, (job, name, *_) in enumerate(ready)}
    for name, places in zip(ids, left.places, strict=True):
        assert places == ((Place(ANY, named[name]),) if name in named else ())


def test_phases_that_are_done_are_left_out() -> None:
    """a is done, b half; c has not begun, though it is ready; e is to come."""
    left = left_of((DIAMOND, "b", 3.0, 2), (DIAMOND, "c", 9.0, 10))
    assert left.flows.work.tolist() == [3, 9, 2]
    assert left.flows.max_share.tolist() == [2, 10, 1]
    assert [set(one) for one in left.flows.before] == [set(), set(), {0, 1}]
    assert left.places == [(Place(ANY, 0),), (Place(ANY, 1),), ()]


def test_a_phase_waits_only_for_the_unfinished_predecessor() -> None:
    """c is done, b is not: e waits for b alone."""
    left = left_of((DIAMOND, "b", 3.0, 2))
    assert left.flows.work.tolist() == [3, 2]
    assert list(left.flows.before) == [(), (0,)]


def test_the_last_phase_of_a_job_is_a_flow() -> None:
    """All others are done, and fewer tasks than slots are left."""
    left = left_of((DIAMOND, "e", 0.5, 1))
    assert left.flows.work.tolist() == [0.5]
    assert left.flows.alone.tolist() == [0.5]


def test_a_task_of_unknown_work_counts_as_ten_seconds() -> None:
    """The future phase states no work of its tasks. The ready phase has an estimate."""
    job = Job("j", (phase("a", None, 4), phase("b", None, 3, "a")))
    left = left_of((job, "a", 7.0, 4))
    assert left.flows.work.tolist() == [7, 3 * DEFAULT_WORK]


def test_zero_work_counts_as_a_tiny_amount() -> None:
    """It cannot be planned, only simulated: such a phase takes no time."""
    job = Job("j", (phase("a", 4, 4), phase("b", 0, 3, "a"), phase("c", 4, 2, "b")))
    left = left_of((job, "a", 4.0, 4))
    assert 0 < left.flows.work[1] < 1e-6
    assert left.flows.alone.tolist() == [pytest.approx(3.0)]


def test_claims_of_each_kind_are_mapped_back() -> None:
    """A map of one job and a reduce of the other are ready; `places` refers to both."""
    jobs = [
        Job(n, (phase("m", 12, 6, kind="map"), phase("r", 6, 3, "m", kind="reduce")))
        for n in "xy"
    ]
    left = flows_left(
        {
            "reduce": claims(TWO_KINDS, [(jobs[1], "r", 4.0, 3)], "reduce"),
            "map": claims(TWO_KINDS, [(jobs[0], "m", 12.0, 6)], "map"),
        },
        RESPONSE,
    )
    assert left.flows.capacity.tolist() == [6, 3]
    assert left.places == [(Place("reduce", 0),), (Place("map", 0),), ()]
    assert left.flows.kind.tolist() == [1, 0, 1]
    assert left.flows.flow.tolist() == [0, 1, 1]


def test_a_reduce_that_began_early_waits_for_nothing_more() -> None:
    """By slow start it is ready together with its maps, on its own slots."""
    job = Job(
        "x",
        (
            phase("m", 12, 6, kind="map"),
            replace(phase("r", 6, 3, "m", kind="reduce"), slow_start=0.5),
            phase("end", 1, 1, "r", kind="map"),
        ),
    )
    left = flows_left(
        {
            "map": claims(TWO_KINDS, [(job, "m", 6.0, 3)], "map"),
            "reduce": claims(TWO_KINDS, [(job, "r", 6.0, 3)], "reduce"),
        },
        RESPONSE,
    )
    assert left.flows.work.tolist() == [6, 6, 1]
    assert list(left.flows.before) == [(), (), (1,)]


COPIED = Job(
    "k",
    (
        phase("copy", 8, 4),
        Phase("compute", Tasks(4, 5.0), continues="copy"),
        Phase("write", Tasks(4, 1.0), continues="compute"),
        phase("end", 3, 1, "write"),
    ),
)


def test_parts_of_a_job_that_are_ready_together_share_their_most() -> None:
    """The tasks that copy and those that compute are the same at different times (5.2).

    Two still copy, one computes, one writes: one phase of all their work, with 2 slots at
    most, and the end waits for it.
    """
    left = left_of(
        (COPIED, "copy", 4.0, 2), (COPIED, "compute", 15.0, 1), (COPIED, "write", 4.0, 1)
    )
    assert left.flows.work.tolist() == [23, 3]
    assert left.flows.max_share.tolist() == [2, 1]
    assert list(left.flows.before) == [(), (0,)]
    assert left.places == [(Place(ANY, 0), Place(ANY, 1), Place(ANY, 2)), ()]


def test_a_part_without_runnable_work_counts_as_future() -> None:
    """The copied tasks have been computed and two still copy: computing waits again."""
    left = left_of((COPIED, "copy", 4.0, 2), (COPIED, "write", 2.0, 2))
    assert left.places[:2] == [(Place(ANY, 0),), ()]
    assert (Place(ANY, 1),) in left.places
    assert len(left.flows.work) == 4


def test_ready_phases_that_do_not_wait_for_each_other_stay_apart() -> None:
    """Two branches of one job on one kind of slot each have their own max share."""
    left = left_of((DIAMOND, "b", 6.0, 2), (DIAMOND, "c", 9.0, 10))
    assert left.flows.max_share.tolist() == [2, 10, 1]


@pytest.mark.parametrize(
    ("penalty", "expected"),
    [
        ("response", Line(2.0, -5.0)),
        ("tardiness", Hinge(2.0, -1.0)),
        ("tardy", Steps(((-1.0, 2.0),))),
        ("stretch", Line(2.0 / 25, -5.0)),
    ],
)
def test_costs_are_relative_to_now(penalty: str, expected: object) -> None:
    """A job of 25 s that came at 4 and was due at 8; it is 9."""
    job = replace(DIAMOND, arrival=4.0, weight=2.0, deadline=8.0)
    ready = [(job, "e", 2.0, 1.0)]
    left = flows_left({ANY: claims(TEN, ready, now=9.0)}, Objective(penalty))
    (cost,) = left.flows.costs
    assert cost.kinks == expected.kinks
    for at in (0.0, 0.5, 3.0):
        assert cost.at(at) == pytest.approx(expected.at(at))
