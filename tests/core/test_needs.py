"""The ready phases by what their tasks need."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster, Host
from slotwise.core.events import JobArrived
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.needs import PhasesByNeeds
from slotwise.core.phase_state import PhaseState
from slotwise.core.resources import Resources, resources_of
from slotwise.core.state import State

AMOUNTS = st.dictionaries(st.sampled_from(["memory", "gpu", "licence"]), st.integers(0, 3))


def phases_of(requests: list[dict[str, int]]) -> list[PhaseState]:
    """A ready phase for each of these requests, on a host that has all of them."""
    has = {"memory": 100, "gpu": 100, "licence": 100}
    state = State(Cluster((Host("h", {"task": 100}, resources=has),)))
    for number, request in enumerate(requests):
        phase = Phase("p", Tasks(1, 1.0), resources=request)
        state.apply(JobArrived(0.0, Job(f"j{number}", (phase,))))
    return list(state.at(0.0).ready("task"))


@given(st.lists(AMOUNTS, max_size=30), st.sets(st.integers(0, 29)), AMOUNTS)
def test_needs_within_amounts_are_found(
    requests: list[dict[str, int]], leave: set[int], most: dict[str, int]
) -> None:
    """They are those of the phases that have not left, of which no amount is larger."""
    phases, found = phases_of(requests), PhasesByNeeds()
    for phase in phases:
        found.add(phase)
    for number in leave & set(range(len(phases))):
        found.remove(phases[number])
    left = [phase for number, phase in enumerate(phases) if number not in leave]
    found.check(left)
    limit = resources_of("most", most)
    expected = {phase.needs for phase in left if limit.holds(phase.needs)}
    assert set(found.within(limit)) == expected
    assert len(found.within(limit)) == len(expected)


def test_phases_that_need_the_same_are_together() -> None:
    """They are in the order in which they became ready."""
    first, other, last = phases_of([{"gpu": 1}, {}, {"gpu": 1}])
    found = PhasesByNeeds()
    for phase in (first, other, last):
        found.add(phase)
    assert list(found) == [first.needs, Resources({})]
    assert list(found[first.needs]) == [first, last]
