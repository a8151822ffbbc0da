"""Each penalty of one job, against numbers by hand."""

from __future__ import annotations

import pytest

from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import PENALTIES, Cost, Hinge, Line, Size, Steps

JOB = Job(
    "j",
    (Phase("map", Tasks(4, 5.0)),),
    arrival=5.0,
    weight=3.0,
    deadline=10.0,
    steps=((8.0, 1.0), (20.0, 4.0)),
)
"""Weight 3, arrival 5, due at 10, and agreed: 1 when later than 8, 4 when later than 20."""

SIZE = Size(work=20.0, alone=2.5)

BY_HAND = {
    "response": {5: 0.0, 12: 21.0},
    "stretch": {5: 0.0, 12: 21.0 / 20},
    "slowdown": {7.5: 3.0, 12: 21.0 / 2.5},
    "tardy": {0: 0.0, 10: 0.0, 10.5: 3.0, 99: 3.0},
    "tardiness": {0: 0.0, 10: 0.0, 12: 6.0},
    "lateness": {5: -15.0, 10: 0.0, 12: 6.0},
    "sla": {8: 0.0, 8.5: 1.0, 20: 1.0, 20.5: 4.0, 99: 4.0},
    "makespan": {0: 0.0, 12: 12.0},
}
"""Of each penalty: completion and what it costs then."""

SHAPES: dict[str, Cost] = {
    "response": Line(3.0, 5.0),
    "stretch": Line(3.0 / 20, 5.0),
    "slowdown": Line(3.0 / 2.5, 5.0),
    "tardy": Steps(((10.0, 3.0),)),
    "tardiness": Hinge(3.0, 10.0),
    "lateness": Line(3.0, 10.0),
    "sla": Steps(JOB.steps),
    "makespan": Line(1.0),
}


@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_cost_of_one_job(penalty: str) -> None:
    """What the formula gives when the job is done in time, just in time, and late."""
    cost = PENALTIES[penalty](JOB, SIZE)
    assert {at: cost.at(at) for at in BY_HAND[penalty]} == pytest.approx(BY_HAND[penalty])


@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_shape_of_a_penalty(penalty: str) -> None:
    """Plans and bounds look at the shape, so that it is part of what a penalty says."""
    assert PENALTIES[penalty](JOB, SIZE) == SHAPES[penalty]


@pytest.mark.parametrize("penalty", ["tardy", "sla"])
@pytest.mark.parametrize(("part", "cost"), [(1e-10, 0.0), (1e-8, 1.0)])
def test_a_deadline_is_met_to_a_billionth(penalty: str, part: float, cost: float) -> None:
    """A completion that only rounding has put behind its deadline is in time."""
    due = 1e6
    job = Job("j", JOB.phases, deadline=due, steps=((due, 1.0),))
    assert PENALTIES[penalty](job, SIZE).at(due * (1 + part)) == cost
