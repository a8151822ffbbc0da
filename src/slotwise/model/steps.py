"""The steps of a job: instants, and what it costs to complete after them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from slotwise.model.errors import InputError
from slotwise.model.typed import MAX_NUMBER, MAX_TIME, is_number, shown


def checked_steps(
    job: str, steps: Iterable[Iterable[float]]
) -> tuple[tuple[float, float], ...]:
    """The steps as pairs. InputError for one that is no pair, or that does not increase."""
    pairs = []
    if not isinstance(steps, Iterable):
        raise InputError(f"job {job!r}: steps is {shown(steps)}; give pairs (seconds, cost)")
    for step in steps:
        try:
            at, cost = step
        except (TypeError, ValueError):
            raise InputError(
                f"job {job!r}: step {step!r} is no pair; give (seconds, cost)"
            ) from None
        if not (is_number(at) and is_number(cost)):
            raise InputError(f"job {job!r}: step {step!r}; its time and cost must be numbers")
        if not (0 <= at <= MAX_TIME and 0 <= cost <= MAX_NUMBER):
            raise InputError(
                f"job {job!r}: step {shown(step)}; its time and its cost must be >= 0, and at"
                f" most {MAX_TIME:g} and {MAX_NUMBER:g}"
            )
        pairs.append((at, cost))
    for one, other in pairwise(pairs):
        if not (one[0] < other[0] and one[1] < other[1]):
            raise InputError(
                f"job {job!r}: step {other} follows {one}; times and costs must increase"
            )
    return tuple(pairs)
