"""Small jobs arrive after a big one: three schedulers on the simulated cluster."""

import slotwise
from slotwise import Job, Phase, Tasks

jobs = [Job("big", (Phase("map", Tasks(count=200, work=3.0)),))]
jobs += [
    Job(f"small-{n}", (Phase("map", Tasks(count=4, work=3.0)),), arrival=5.0 * n)
    for n in range(1, 6)
]

for result in slotwise.compare(jobs, ["fifo", "fair", "flex"], slots=10):
    mean, gap = result.metrics["response_mean"], result.metrics["gap"]
    small = max(t["response"] for name, t in result.jobs.items() if name != "big")
    print(
        f"{result.scheduler}: mean response {mean:.1f} s, slowest small job {small:.0f} s,",
        end="",
    )
    print(f" {gap:.1%} above the bound")
