"""Budgets: who is refused a step, and whether a larger budget would have allowed it."""

from __future__ import annotations

from itertools import count

from slotwise.policy.search.budget import Budget


def spend(budget: Budget) -> int:
    """Take steps until one is refused; returns their number."""
    return next(taken for taken in count() if not budget.may_go_on())


def test_a_budget_is_short_when_a_step_is_refused() -> None:
    """Not when its last step is taken."""
    budget = Budget(2)
    assert [budget.may_go_on(), budget.may_go_on(), budget.was_short] == [True, True, False]
    assert not budget.may_go_on()
    assert budget.was_short


def test_a_clock_makes_a_budget_short() -> None:
    """As a number of steps does."""
    budget = Budget(is_over=iter([False, False, True]).__next__)
    assert spend(budget) == 2
    assert budget.was_short


def test_a_part_with_a_limit_of_its_own_does_not_make_the_whole_short() -> None:
    """With more steps in all, the part would end at the same step."""
    budget = Budget(100)
    assert spend(budget.part(5)) == 5
    assert (budget.spent, budget.was_short) == (5, False)


def test_a_part_limited_by_the_whole_makes_it_short() -> None:
    """With more steps in all, a quarter of them would be more."""
    budget = Budget(100)
    assert spend(budget.part(50, parts=4)) == 25
    assert (budget.spent, budget.was_short) == (25, True)


def test_an_ended_search_is_not_short() -> None:
    """It takes no further step, neither by itself nor by a part, and needs none."""
    budget = Budget(100)
    part = budget.part(parts=2)
    budget.end()
    assert (spend(budget), spend(part), budget.was_short) == (0, 0, False)
