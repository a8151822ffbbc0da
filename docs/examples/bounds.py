"""The three bounds by hand: two jobs on 10 slots, the second of which arrives at 2 s."""

from slotwise.allocation.bounds import (
    BoundJobs,
    area_bound_max,
    busy_time_bound,
    height_bound_sum,
    lower_bound,
)

jobs = BoundJobs(
    slope=[1.0, 1.0],
    origin=[0.0, 2.0],  # cost = slope * (C - origin): the response time
    arrival=[0.0, 2.0],
    work=[40.0, 40.0],
    rate=[8.0, 8.0],
    height=[5.0, 5.0],
)
print(f"height, sum of responses:    {height_bound_sum(jobs):.4f}")
print(f"busy time, sum of responses: {busy_time_bound(jobs, 10):.4f}")
print(f"area, greatest response:     {area_bound_max(jobs, 10):.4f}")
print(f"best for the sum:            {lower_bound(jobs, 10, 'sum'):.4f}")
