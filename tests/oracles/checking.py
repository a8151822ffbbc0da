"""Whether a schedule is one: looked at piece by piece, knowing nothing of how it was made."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from slotwise.policy.malleable import Malleable

Pieces = Sequence[tuple[float, float, float]]

EXACT = 1e-9
"""What rounding may add, as a part of the work, the slots or the length of the schedule."""


def check_packing(
    problem: Malleable, packing: Sequence[Pieces], completion: Sequence[float]
) -> None:
    """Assert that capacity, min and max shares are kept and that all work is done.

    packing     for each job its pieces (start, end, slots), in order of time
    completion  of each job
    """
    assert len(packing) == len(completion) == len(problem)
    dust = EXACT * max(completion, default=0.0)
    for j, pieces in enumerate(packing):
        _check_job(problem, j, pieces, float(completion[j]), dust)
    changes = [
        (at, change)
        for pieces in packing
        for start, end, slots in pieces
        for at, change in ((start, slots), (end, -slots))
    ]
    changes.sort()
    held = 0.0
    for (at, change), (following, _) in pairwise(changes):
        held += change
        if following - at > dust:
            assert held <= problem.capacity * (1 + EXACT), f"{held} slots are held at {at}"


def _check_job(
    problem: Malleable, j: int, pieces: Pieces, completion: float, dust: float
) -> None:
    """One job: its pieces are in order, within its shares until it is complete, and enough."""
    min_share, max_share = float(problem.min_share[j]), float(problem.max_share[j])
    assert pieces, f"job {j} is never run"
    assert pieces[0][0] >= 0.0
    assert pieces[-1][1] == pytest.approx(completion, rel=EXACT)
    now = 0.0
    for start, end, slots in pieces:
        assert end > start
        assert start >= now - dust, f"two pieces of job {j} overlap at {start}"
        if start - now > dust:
            assert min_share <= EXACT * max_share, (
                f"job {j} holds nothing from {now} to {start}"
            )
        if end - start > dust:
            assert min_share * (1 - EXACT) <= slots <= max_share * (1 + EXACT), (
                f"job {j} at {start}"
            )
        now = end
    area = sum((end - start) * slots for start, end, slots in pieces)
    assert area == pytest.approx(problem.work[j], rel=EXACT), f"work of job {j}"
