"""Which runnable tasks of a computation are offered slots, against sorting all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slotwise.dask.computations import Frontier

CHANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=80)


@given(CHANGES)
def test_the_first_tasks_are_offered(changes: list[tuple[int, int]]) -> None:
    """Each change adds a task or removes it; then at most so many are to be offered."""
    frontier, runnable, offered = Frontier(), set[int](), set[int]()
    for rank, most in changes:
        if rank in runnable:
            runnable.remove(rank)
            offered.discard(rank)
            frontier.remove(rank)
        else:
            runnable.add(rank)
            frontier.add(rank)
        size = max(len(offered), min(most, len(runnable)))
        new, old = frontier.balance(most)
        assert offered.isdisjoint(new)
        assert offered.issuperset(old)
        offered = (offered | {*new}) - {*old}
        assert sorted(offered) == sorted(runnable)[:size]
        assert (frontier.offered, frontier.deferred) == (size, len(runnable) - size)
        assert frontier.has_enough(most)


def test_bound_tasks_are_offered_beside_the_first_ones() -> None:
    """They take the place of no other task."""
    frontier = Frontier()
    for rank in range(3):
        frontier.add(rank)
    frontier.bind(9)
    assert frontier.balance(1) == ([0], [])
    assert (frontier.offered, frontier.deferred) == (2, 2)
    assert frontier.has_enough(1)
    assert not frontier.has_enough(2)
    frontier.remove(9)
    assert frontier.balance(2) == ([1], [])
    assert (frontier.offered, frontier.deferred) == (2, 1)


def test_tasks_that_leave_take_no_memory() -> None:
    """A task that comes and goes leaves nothing behind."""
    frontier = Frontier()
    for rank in range(1000):
        frontier.add(rank)
        frontier.remove(rank)
    assert len(frontier._order) <= 1
