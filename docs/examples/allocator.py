"""A custom allocator that gives the slack to the largest job."""

from typing import ClassVar

from slotwise import Cluster, Job, Objective, Phase, Pool, Tasks
from slotwise.core.pools import PoolTree
from slotwise.insight.bound import Work, objective_bound
from slotwise.policy.fluid import fluid_schedule
from slotwise.policy.grant import grant


class LargestFirst:
    """Gives all claims their min shares, then the slack to the largest job first."""

    reads_work: ClassVar[bool] = True
    phase_seconds: ClassVar[float] = 1e-5
    keeps_min_shares: ClassVar[bool] = True

    def share(self, claims):
        order = sorted(range(len(claims)), key=lambda j: -claims.work[j])
        return grant(claims, order)


cluster = Cluster.of_slots(10)
jobs = [
    Job("query", (Phase("map", Tasks(count=8, work=5.0)),)),
    Job("report", (Phase("map", Tasks(count=40, work=10.0)),)),
]
schedule = fluid_schedule(jobs, cluster, PoolTree([Pool()]), LargestFirst())
schedule.check(jobs, cluster)
work = Work.estimated(jobs)
aim = Objective("response", "sum")
print("completion:", {job: round(at, 3) for job, at in schedule.completion().items()})
print("bound on the sum:", round(objective_bound(aim, jobs, cluster, work), 3))
