"""Lower bounds on the cost of every schedule of any scheduler.

They hold for malleable jobs on `capacity` (slots times speed), where job j does work at a rate
between `min_share` and `rate`, and not before its arrival. Real schedules, with whole tasks,
only cost more. `lower_bound` returns the best of all; proofs are in docs/algorithms/bounds.md.
"""

from __future__ import annotations

from slotwise.policy.bounds.best import lower_bound
from slotwise.policy.bounds.height import due_date_bound, height_bound_max, height_bound_sum
from slotwise.policy.bounds.jobs import BoundJobs, Parts
from slotwise.policy.bounds.lines import busy_time_bound, caps_bound
from slotwise.policy.bounds.prices import price_bound

__all__ = [
    "BoundJobs",
    "Parts",
    "busy_time_bound",
    "caps_bound",
    "due_date_bound",
    "height_bound_max",
    "height_bound_sum",
    "lower_bound",
    "price_bound",
]
