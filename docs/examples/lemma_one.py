"""A counterexample to FLEX, Lemma 1: no priority order is optimal for this makespan."""

from itertools import permutations

import slotwise
from slotwise import Job, Objective, Phase, Tasks
from slotwise.policy.packing import pack

SLOTS, WORK, MOST = 10, [40.0, 40.0], [8, 8]

for order in permutations(range(2)):
    packing = pack(SLOTS, WORK, [0, 0], MOST, order)
    print("order", order, "ends at", max(end for pieces in packing for _, end, _ in pieces))

jobs = [
    Job(name, (Phase("map", Tasks(count=40, work=1.0), slots_max=8),)) for name in ("a", "b")
]
for name in ("flex", "fair"):
    plan = slotwise.plan(jobs, name, slots=SLOTS, objective=Objective("makespan", "max"))
    print(f"{name}: {plan.value:g}, bound {plan.bound:g}, proven optimal: {plan.is_exact}")
