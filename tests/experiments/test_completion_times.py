"""The completion times of claims under an allocator, without a schedule in whole slots."""

from __future__ import annotations

import pytest

from experiments.flex.experiment import completion_times
from slotwise.policy.allocator import Claims
from slotwise.policy.fair import Fair, Fifo


def test_fair_shares_again_when_a_claim_completes() -> None:
    """Two claims hold 2 of 4 slots each until 1 s; then the longer one holds all 4."""
    claims = Claims.of(4, [2.0, 10.0])
    assert completion_times(claims, Fair()).tolist() == [1.0, 3.0]


def test_a_min_share_may_be_a_fraction_of_a_slot() -> None:
    """The second claim keeps 2.5 of 4 slots and completes at 2 s; then the first holds 4."""
    claims = Claims.of(4, [7.0, 5.0], min_share=[0.0, 2.5])
    assert completion_times(claims, Fair()).tolist() == pytest.approx([3.0, 2.0])


def test_under_fifo_a_claim_waits_without_slots() -> None:
    """The first claim holds all slots for 3 s, and the second one runs after it."""
    claims = Claims.of(2, [6.0, 2.0])
    assert completion_times(claims, Fifo()).tolist() == [3.0, 4.0]
