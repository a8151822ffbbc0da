"""The lower bounds one by one: two jobs on 10 slots, the second arriving at 2 s."""

from slotwise.core.objective import Hinge, Line
from slotwise.policy.bounds import (
    BoundJobs,
    busy_time_bound,
    caps_bound,
    due_date_bound,
    height_bound_sum,
    lower_bound,
    price_bound,
)


def two(costs, min_share=None):
    return BoundJobs.of(
        costs,
        arrival=[0.0, 2.0],
        work=[40.0, 40.0],
        rate=[8.0, 8.0],
        height=[5.0, 5.0],
        min_share=min_share,
    )


jobs = two([Line(1.0, 0.0), Line(1.0, 2.0)])  # Response time: slope * (C - origin).
print("Sum of responses")
print(f"  height:    {height_bound_sum(jobs):.4f}")
print(f"  busy time: {busy_time_bound(jobs, 10):.4f}")
print(f"  caps:      {caps_bound(jobs, 10):.4f}")
print(f"  prices:    {price_bound(jobs, 10):.4f}")
print(f"  the best:  {lower_bound(jobs, 10, 'sum'):.4f}")
print(f"Greatest response, due dates: {due_date_bound(jobs, 10):.4f}")
late = two([Hinge(1.0, 5.0), Hinge(1.0, 7.0)])
print(f"Sum of tardiness, due at 5 and 7: {lower_bound(late, 10, 'sum'):.4f}")
